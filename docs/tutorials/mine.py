import gymnasium
import numpy as np
from samba_rl import GymTask


class Cart(gymnasium.Env):
    """A cart of 1 kg on a spring of 2 N/m, pushed by a noisy motor."""

    observation_space = gymnasium.spaces.Box(-10, 10, (2,))
    action_space = gymnasium.spaces.Box(-4, 4, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.normal(0, 0.05, 2)
        return self.x.astype(np.float32), {}

    def step(self, action):
        force = action[0] + self.np_random.normal(0, 0.1)
        self.x[1] += 0.1 * (force - 2 * self.x[0])
        self.x[0] += 0.1 * self.x[1]
        return self.x.astype(np.float32), -((self.x[0] - 1) ** 2), False, False, {}


def cost(x, u):  # states [B, 2], actions [B, 1] -> [B]
    return (x[..., 0] - 1).square() + 0.001 * u[..., 0].square()


def safety(x, u):  # 0 up to 1.0 m, rising to 1 at the wall
    return ((x[..., 0] - 1) / 0.2).clamp(0, 1)


def task():
    return GymTask(
        Cart,
        cost=cost,
        safety=safety,
        horizon=25,
        dt=0.1,
        name="cart",
        states=["position [m]", "velocity [m/s]"],
        actions={"force": "N"},
    )
