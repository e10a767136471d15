# SPDX-License-Identifier: MIT
"""Elementwise CuPy kernels, each result an allocation: python3 cupy_elementwise.py [none|async], none: without its own pools."""
import cupy as cp, time, sys
if len(sys.argv)>1 and sys.argv[1]=='none': cp.cuda.set_allocator(None); cp.cuda.set_pinned_memory_allocator(None)
if len(sys.argv)>1 and sys.argv[1]=='async': cp.cuda.set_allocator(cp.cuda.MemoryAsyncPool().malloc)
a=cp.ones((1<<20,),cp.float32)
def it():
    b=a*2; c=b+1; d=cp.sqrt(c); e=d*d; return e
for _ in range(10): it()
cp.cuda.Device().synchronize(); t=time.time()
for _ in range(2000): r=it()
cp.cuda.Device().synchronize(); print('cupy %s %.2f us/iter sum %.1f'%(sys.argv[1:],(time.time()-t)/2000*1e6,float(r.sum())))
p=cp.cuda.MemoryPool(); m=p.malloc(1024); del m; t=time.time()
for _ in range(100000): m=p.malloc(1024)
print('cupy pool malloc+free %.3f us'%((time.time()-t)/100000*1e6))
