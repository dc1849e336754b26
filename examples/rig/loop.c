/* The loop of a controller in C: a line with the observation comes in, a line with the action goes out.

   cc -std=c99 loop.c -o loop -lm      policy.h is from: samba-rl export runs/cart policy.h --task cart.py:task */
#include <stdio.h>
#include "policy.h"

int main(void)
{
    policy_real observation[POLICY_OBSERVATIONS], action[POLICY_ACTIONS];
    int i;

    for (;;) {
        for (i = 0; i < POLICY_OBSERVATIONS; i++)
            if (scanf("%lf", &observation[i]) != 1)
                return 0;
        if (policy_act(observation, action))
            return 1; /* a reading is not finite: stop */
        if (policy_monitor(observation) > 3)
            return 2; /* far from everything that was measured: stop */
        for (i = 0; i < POLICY_ACTIONS; i++)
            printf("%.17g%c", action[i], i + 1 < POLICY_ACTIONS ? ' ' : '\n');
        fflush(stdout);
    }
}
