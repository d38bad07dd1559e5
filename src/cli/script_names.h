/* script_names - the scripts of PaddleFleetX that this program replaces. */
#ifndef CLI_SCRIPT_NAMES_H
#define CLI_SCRIPT_NAMES_H

/* The command for the script run_pretrain.py or tools/train.py, at any path; any other
 * word is returned unchanged, also NULL. */
const char *command_of_script(const char *word);

#endif
