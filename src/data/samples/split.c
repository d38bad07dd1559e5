#include "data/samples/split.h"

#include <math.h>

const char *split_part_name(enum split_part part)
{
    static const char *const names[SPLIT_PARTS] = {"train", "valid", "test"};
    return names[part];
}

int split_documents(const double weights[SPLIT_PARTS], int64_t n_documents,
                    int64_t bounds[SPLIT_PARTS + 1], struct error *err)
{
    double sum = 0;
    for (int p = 0; p < SPLIT_PARTS; p++) {
        if (!isfinite(weights[p]) || weights[p] < 0)
            return error_set(err, ERROR_INPUT,
                             "dataset.split: weight %d is %g; weights must be finite and "
                             "not negative, for example 949,50,1",
                             p + 1, weights[p]);
        sum += weights[p];
    }
    if (!(sum > 0) || !isfinite(sum))
        return error_set(err, ERROR_INPUT,
                         "dataset.split: the weights add up to %g; at least one must be "
                         "above 0, for example 949,50,1",
                         sum);
    bounds[0] = 0;
    for (int p = 0; p < SPLIT_PARTS; p++) // rint: halves to even, like Python's round
        bounds[p + 1] = bounds[p] + (int64_t)rint(weights[p] / sum * (double)n_documents);
    int64_t surplus = bounds[SPLIT_PARTS] - n_documents;
    for (int p = 1; p <= SPLIT_PARTS; p++)
        bounds[p] = i64_max(0, bounds[p] - surplus);
    return 0;
}
