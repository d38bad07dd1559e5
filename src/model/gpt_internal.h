/* gpt_internal - what the files of the model share and nobody else needs. */
#ifndef MODEL_GPT_INTERNAL_H
#define MODEL_GPT_INTERNAL_H

#define GPT_LOGIT_ROWS 512 // rows of logits that exist at a time

#endif
