/*
 * cmd - the subcommands of `trefoil`, one file each.
 *
 * Each takes the arguments from its own name on (argv[0] is "pretrain", ...) and returns
 * the exit code of the process: 0 done, 2 bad usage, configuration or input, 3 run-time
 * failure, 75 stopped on request.
 */
#ifndef CLI_CMD_H
#define CLI_CMD_H

int cmd_pretrain(int argc, char **argv);
int cmd_prepare(int argc, char **argv);
int cmd_tokenizer(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_import(int argc, char **argv);
int cmd_launch(int argc, char **argv);
int cmd_schedule(int argc, char **argv);
int cmd_board(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_selftest(int argc, char **argv);

#endif
