import pytest
import torch
from torch import Generator

from samba_rl.models.gp import GPDynamics
from samba_rl.models.likelihood import FitSettings
from samba_rl.models.pathwise import Functions
from samba_rl.models.settings import GPSettings
from tests.models.test_gp import TASK, queries, real


@pytest.mark.parametrize("noise", [(1e-6, 1.0), (0.3, 1.0)])
def test_functions_have_the_posteriors_moments(noise: tuple[float, float]) -> None:
    """Evaluate many functions at one query, near the data and away from them."""
    model = GPDynamics(TASK, GPSettings(fit=FitSettings(noise_bounds=noise)))
    model.fit(real(25))
    model.load_state_dict(model.state_dict() | {"factor": torch.tensor([1.0, 1.7], dtype=torch.float64)}, real(25))
    n = 4000
    functions = Functions.draw(model, n, 2048, Generator().manual_seed(2))
    data = real(25)
    at_data = TASK.model_inputs(data.x, data.u)[10:11]
    for query in (at_data, queries(3)[:1], queries(3)[2:] + 3.0):
        values = functions(query.expand(n, -1))
        expected = model.predict(query)
        deviation = expected.variance[0].sqrt()
        assert ((values.mean(0) - expected.mean[0]) / deviation).abs().max() < 0.1
        assert torch.allclose(values.std(0), deviation, rtol=0.1)
