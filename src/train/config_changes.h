/* config_changes - what a resumed run does otherwise than the run that saved. */
#ifndef TRAIN_CONFIG_CHANGES_H
#define TRAIN_CONFIG_CHANGES_H

#include "base/base.h"

#include <jansson.h>

/* Log each key whose value in the configuration `now_json` differs from that in `then`. If
 * the model has seen samples, a change that moves text between training and validation,
 * or the run's position in the training text, is a warning that names its consequence. */
void config_changes_log(json_t *then, const char *now_json, bool has_samples);

#endif
