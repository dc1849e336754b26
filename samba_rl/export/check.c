/* Runs an exported policy: reads pairs of a first observation and a later one, and writes action, monitor and expert. */
#include <stdio.h>
#include "policy.h"

int main(void)
{
    double numbers[2][${P}_OBSERVATIONS];
    while (fread(numbers, sizeof numbers, 1, stdin) == 1) {
        ${p}_real first[${P}_OBSERVATIONS], observation[${P}_OBSERVATIONS], action[${P}_ACTIONS];
        double results[${P}_ACTIONS + 2] = {0};
        int i, failed;
        for (i = 0; i < ${P}_OBSERVATIONS; i++) {
            first[i] = numbers[0][i];
            observation[i] = numbers[1][i];
        }
#ifdef ${P}_EXPERTS
        {
            const int expert = ${p}_begin(first);
            failed = ${p}_act(observation, expert, action);
            results[${P}_ACTIONS + 1] = expert;
        }
#else
        (void)first;
        failed = ${p}_act(observation, action);
#endif
        if (failed)
            return 3;
        for (i = 0; i < ${P}_ACTIONS; i++)
            results[i] = action[i];
#if ${P}_HAS_MONITOR
        results[${P}_ACTIONS] = ${p}_monitor(observation);
#endif
        if (fwrite(results, sizeof results, 1, stdout) != 1)
            return 4;
    }
    return 0;
}
