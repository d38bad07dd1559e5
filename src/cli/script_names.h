/* script_names - the scripts of PaddleFleetX that this program replaces. */
#ifndef CLI_SCRIPT_NAMES_H
#define CLI_SCRIPT_NAMES_H

/* The command for a script at any path, run_pretrain.py or tools/train.py; another word
 * itself. NULL is NULL. */
const char *command_of_script(const char *word);

#endif
