"""What a file asks of the process that loads it: primitives of the same meaning, and arrays that fit each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas, check_tree
from isr.bijections.networks import EQL
from isr.bijections.parameters import cast
from isr.bijections.primitives import PRIMITIVES
from isr.storage.bundle import REMEDY, ModelFileError


def primitives_of(tree: Any) -> set[str]:
    """Return the names of the primitives that models compute with."""
    used = {name for network in _parts(tree, EQL) for name, _ in network.library}
    return used | {
        name for part in _parts(tree, Formulas) for formula in part.trees for name in _calls(formula)
    }


def _parts(tree: Any, kind: type) -> list[Any]:
    leaves = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, kind))
    return [leaf for leaf in leaves if isinstance(leaf, kind)]


def _calls(formula: tuple[Any, ...]) -> Iterator[str]:
    if formula[0] == "call":
        yield formula[1]
    for part in formula[1:]:
        if isinstance(part, tuple):
            yield from _calls(part)


def probe(name: str) -> list[float]:
    """A primitive's values at fixed points: what tells whether a name still means the same function."""
    primitive = PRIMITIVES[name]
    if not primitive.arity:
        return []
    points = np.array([[-1.7, -0.3, 0.4, 1.9], [0.6, -1.1, 2.3, 0.8]])
    with jax.enable_x64(True):
        return np.asarray(primitive.apply(*map(jnp.asarray, points[: primitive.arity]))).tolist()


def refuse_unknown_primitives(needed: Mapping[str, list[float]]) -> None:
    """Raise unless every primitive a file needs is known and gives the values it gave then."""
    missing = [name for name in needed if name not in PRIMITIVES]
    if missing:
        raise ModelFileError(
            f"it needs the primitive(s) {', '.join(missing)}, which are not known here; "
            "call isr.register_primitive for each before loading"
        )
    for name, values in needed.items():
        found = probe(name)
        if len(found) != len(values) or not np.allclose(found, values, rtol=1e-9, atol=1e-12, equal_nan=True):
            raise ModelFileError(
                f"the primitive {name!r} known here is not the function of that name it was saved with; "
                "register the same function before loading"
            )


def refuse_bad_formulas(tree: Any) -> None:
    """Raise unless every formula in models is made of known operators, inputs and constants."""
    for part in _parts(tree, Formulas):
        for formula in part.trees:
            check_tree(formula, part.n_inputs, len(part.constants))


def refuse_unless_shapes_fit(model: Any) -> None:
    """Raise unless the arrays of a model fit each other; nothing is computed, JAX only traces the shapes."""
    with jax.enable_x64(True):
        model = cast(model, jnp.float64)

        def rows(n: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((n,), jnp.float64)

        if isinstance(model, Flow):
            _refuse_unless_subnetworks_fit(model)
            y = rows(model.condition_dim) if model.condition_dim else None
            latent, _ = jax.eval_shape(model.forward_one, rows(model.dim), y)
            x, _ = jax.eval_shape(model.inverse_one, rows(model.bijection.dim), y)
            if latent.shape != (model.bijection.dim,) or x.shape != (model.dim,):
                raise ModelFileError(f"its arrays give {latent.shape} and {x.shape}; {REMEDY}")
        elif hasattr(model, "n_inputs"):
            jax.eval_shape(model, rows(model.n_inputs))


def _refuse_unless_subnetworks_fit(flow: Flow) -> None:
    """Tracing lets a width of one or none pass, because such arrays broadcast."""
    n_features = flow.condition_map.n_features if flow.condition_map is not None else 0
    for part in (step for step in flow.steps if step.subnetworks):
        halves = part.split, part.dim - part.split
        for network, given, read in ((part.first, *halves), (part.second, *halves[::-1])):
            found = network.stack, network.n_inputs, network.n_outputs
            expected = len(part.transformer.names), read + n_features, given
            if found != expected:
                raise ModelFileError(
                    f"a subnetwork has (stack, inputs, outputs) {found}, expected {expected}; {REMEDY}"
                )
