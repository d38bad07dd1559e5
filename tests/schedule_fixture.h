/*
 * schedule_fixture - the schedules of a whole pipeline, and the sizes they are tested at.
 */
#ifndef TESTS_SCHEDULE_FIXTURE_H
#define TESTS_SCHEDULE_FIXTURE_H

#include "test.h"

#include "base/base.h"
#include "parallel/schedule.h"

#define STAGE_LISTS_MAX 64

struct stage_lists {
    struct schedule stages[STAGE_LISTS_MAX];
    int pp;
};

static inline void stage_lists_init(struct stage_lists *p,
                                    const struct schedule_shape *shape)
{
    struct error err;
    p->pp = (int)shape->pp;
    for (int i = 0; i < p->pp; i++)
        assert_ok(schedule_init(&p->stages[i], shape, i, &err), err);
}

static inline void stage_lists_release(struct stage_lists *p)
{
    for (int i = 0; i < p->pp; i++)
        schedule_release(&p->stages[i]);
}

/* Call `check` with every legal pipeline of pp <= 16, chunks <= 4, micro-batches <= 64,
 * and with a few larger ones; returns how many. */
static inline int stage_lists_for_each(void (*check)(const struct stage_lists *))
{
    static const struct schedule_shape large[] = {
        {64, 8, 64, SCHEDULE_1F1B},     {64, 8, 192, SCHEDULE_1F1B},
        {64, 8, 64, SCHEDULE_F_THEN_B}, {63, 7, 126, SCHEDULE_1F1B},
        {64, 1, 200, SCHEDULE_1F1B},    {64, 1, 3, SCHEDULE_1F1B},
    };
    struct stage_lists p;
    struct schedule_shape s;
    struct error err;
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(large); i++, n++) {
        stage_lists_init(&p, &large[i]);
        check(&p);
        stage_lists_release(&p);
    }
    for (int kind = SCHEDULE_1F1B; kind <= SCHEDULE_F_THEN_B; kind++)
        for (s.kind = (enum config_schedule)kind, s.pp = 1; s.pp <= 16; s.pp++)
            for (s.chunks = 1; s.chunks <= 4; s.chunks++)
                for (s.micro_batches = 1; s.micro_batches <= 64; s.micro_batches++) {
                    if (schedule_check(&s, &err))
                        continue;
                    stage_lists_init(&p, &s);
                    check(&p);
                    stage_lists_release(&p);
                    n++;
                }
    return n;
}

#endif
