/* SPDX-License-Identifier: Apache-2.0
 * A plain program, so that it also runs under ThreadSanitizer: a training on two of the stand-in's devices that saves
 * at every step and never waits for its devices, with slots that are pinned, then with slots that are not. Any access
 * of the training that is not ordered with the copies is a data race in the tensors. */
#include "cuda_rig.h"

#include <stdio.h>

#define STEPS 100

static bool train(bool pinned)
{
    static const uint64_t sizes[] = {1500001, 300000, 5000, 4096, 77, 1};
    struct rig rig;
    bool good;

    rig_open(&rig);
    standin_refuse_pins(!pinned);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        rig_add(&rig, (int)i % STANDIN_DEVICES, sizes[i], false);
        rig_add(&rig, (int)(i + 1) % STANDIN_DEVICES, sizes[i] + 1, i == 2);
        rig_add(&rig, RIG_HOST, 13 + i, false);
    }
    rig_register(&rig, true);
    for (uint64_t step = 1; step <= STEPS; step++) {
        rig_launch_fill(&rig, (uint8_t)step);
        rig_ok(&rig, tck_snapshot(rig.client, step, TCK_SAVE_MEMORY));
        rig_ok(&rig, tck_fence(rig.client));
    }
    rig_ok(&rig, tck_wait(rig.client, STEPS, TCK_STAGE_COMMITTED, RIG_PATIENCE_MS));
    rig_launch_fill(&rig, 0);
    rig_ok(&rig, tck_restore(rig.client, TCK_NEWEST, NULL));
    rig_sync(&rig);
    good = rig_image_holds(&rig, STEPS) && rig_holds(&rig, STEPS);
    rig_close(&rig);
    return good;
}

int main(void)
{
    if (!train(true) || !train(false)) {
        fprintf(stderr, "saved or restored something else\n");
        return 1;
    }
    return 0;
}
