"""Box2D's shapes are freed, but not while something refers to them."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from rl_training.envs import make_env
from rl_training.envs.box2d import free_shapes

EDGE = [(0.0, 0.0), (1.0, 2.0)]


@pytest.fixture(scope="module")
def box2d() -> Any:
    """The library after one of our environments has imported it; importing it directly would warn."""
    make_env("LunarLander-v3").close()
    return sys.modules["Box2D"]


def test_what_resets_build_is_freed(box2d: Any) -> None:
    """The memory of a freed shape is reused, soon or after some others: without the fix, 1,000 shapes have 1,000
    addresses."""
    addresses = set()
    for _ in range(1000):
        shape = box2d.b2EdgeShape(vertices=EDGE)
        addresses.add(int(shape.this))
        box2d.b2FixtureDef(shape=shape)
    assert len(addresses) < 500


def test_a_body_made_from_a_shape_frees_it_as_well(box2d: Any) -> None:
    world = box2d.b2World()
    addresses = set()
    for _ in range(1000):
        shape = box2d.b2EdgeShape(vertices=EDGE)
        addresses.add(int(shape.this))
        body = world.CreateStaticBody(shapes=shape)
        assert body.fixtures[0].shape.vertices == EDGE, "the fixture has a copy of its own"
        world.DestroyBody(body)
    assert len(addresses) < 500


def test_a_definition_keeps_its_shape(box2d: Any) -> None:
    definition = box2d.b2FixtureDef(shape=box2d.b2EdgeShape(vertices=EDGE))
    other = box2d.b2FixtureDef()
    other.shape = definition.shape
    del definition
    gc.collect()
    others = [box2d.b2EdgeShape(vertices=[(7.0, 7.0), (8.0, 8.0)]) for _ in range(100)]  # would reuse freed memory
    assert other.shape.vertices == EDGE
    world = box2d.b2World()
    body = world.CreateStaticBody(fixtures=other)
    assert body.fixtures[0].shape.vertices == EDGE
    assert len(others) == 100


def test_a_shape_outlives_its_definition(box2d: Any) -> None:
    shape = box2d.b2EdgeShape(vertices=EDGE)
    box2d.b2FixtureDef(shape=shape)
    others = [box2d.b2EdgeShape(vertices=[(7.0, 7.0), (8.0, 8.0)]) for _ in range(100)]
    assert shape.vertices == EDGE
    assert len(others) == 100


def test_the_shape_of_a_fixture_stays_the_worlds(box2d: Any) -> None:
    world = box2d.b2World()
    fixture = world.CreateStaticBody(shapes=box2d.b2EdgeShape(vertices=EDGE)).fixtures[0]
    definition = box2d.b2FixtureDef(shape=fixture.shape)
    assert not definition.shape.thisown
    del definition
    assert fixture.shape.vertices == EDGE
    definition = box2d.b2FixtureDef(shape=box2d.b2EdgeShape())
    definition.shape = None
    assert definition.shape is None


def test_the_repair_is_made_once(box2d: Any) -> None:
    repaired = box2d.b2FixtureDef.shape
    free_shapes()
    assert box2d.b2FixtureDef.shape is repaired
