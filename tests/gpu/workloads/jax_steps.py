# SPDX-License-Identifier: MIT
"""A jitted JAX step in a loop."""
import jax, jax.numpy as jnp, time
@jax.jit
def f(x,w):
    for _ in range(4): x=jnp.tanh(x@w)
    return x
w=jnp.ones((1024,1024))*1e-3; x=jnp.ones((512,1024))
for _ in range(5): y=f(x,w)
y.block_until_ready(); t=time.time()
for _ in range(300): x=f(x,w); z=x+1; u=z*2
u.block_until_ready(); print('jax %.3f ms/iter %.4f'%((time.time()-t)/300*1e3,float(u.sum())))
