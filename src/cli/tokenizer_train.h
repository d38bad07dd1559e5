/* tokenizer_train - `trefoil tokenizer train`; argv[0] is "train". */
#ifndef CLI_TOKENIZER_TRAIN_H
#define CLI_TOKENIZER_TRAIN_H

/* Returns the exit code of the process. */
int tokenizer_train(int argc, char **argv);

#endif
