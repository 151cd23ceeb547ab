#!/usr/bin/env python3
"""Writes the trace of tests/traces/synth_rare: operations of serving engines and training stacks beside ATen, each in
two sizes and twice, with a kernel of a random length.

  rare_trace.py OUT.json.gz
"""
import gzip
import json
import random
import sys

r=random.Random(5)
BF,F16,F32,F8,F8Z,I,L,F4="c10::BFloat16","c10::Half","float","c10::Float8_e4m3fn","c10::Float8_e4m3fnuz","int","long int","c10::Float4_e2m1fn_x2"
ev=[{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"python3"}},{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"thread 1"}}]
t=1000.0; cid=1
def st(s):
    o=[];p=1
    for n in reversed(s): o.insert(0,p);p*=n
    return o
def op(name,args,kernel="some_kernel",strides=True):
    global t,cid
    dims=[a[0] if isinstance(a,tuple) else [] for a in args]
    types=[a[1] if isinstance(a,tuple) else ("Scalar" if a!="" else "") for a in args]
    conc=["" if isinstance(a,tuple) else a for a in args]
    for rep in range(2):
        a={"External id":cid,"Input Dims":dims,"Input type":types,"Input Strides":[st(d) for d in dims],"Concrete Inputs":conc}
        if not strides: del a["Input Strides"]
        ev.append({"ph":"X","cat":"cpu_op","name":name,"pid":1,"tid":1,"ts":t,"dur":20.5,"args":a})
        ev.append({"ph":"X","cat":"cuda_runtime","name":"hipLaunchKernel","pid":1,"tid":1,"ts":t+2,"dur":5.25,"args":{"correlation":cid,"External id":cid}})
        ev.append({"ph":"s","id":cid,"pid":1,"tid":1,"ts":t+2,"cat":"ac2g","name":"ac2g"})
        k=t+r.uniform(30,60); d=round(r.uniform(3,40),3)
        ev.append({"ph":"X","cat":"kernel","name":kernel,"pid":0,"tid":7,"ts":k,"dur":d,"args":{"correlation":cid,"External id":cid,"stream":7,"device":0}})
        ev.append({"ph":"f","id":cid,"pid":0,"tid":7,"ts":k,"cat":"ac2g","name":"ac2g","bp":"e"})
        t+=100; cid+=1
for m,h,i,e,k in [(64,512,256,8,2),(7,1024,384,16,4)]:
    op("aiter::moe_cktile2stages_gemm1_ck",[([m,h],BF),([e,2*i,h],F8),([m,k,i],BF)])
    op("aiter::moe_cktile2stages_gemm2_ck",[([m,k,i],BF),([e,h,i],F8),([m,h],BF)])
    op("aiter::ck_moe_stage1",[([m,h],F8),([e,2*i,h],F8),([e,h,i],F8),([9],I),([9],I),([2],I),([m,k,i],BF)])
    op("aiter::ck_moe_stage2",[([m,k,i],F8),([e,2*i,h],F8),([e,h,i],F8),([9],I),([9],I),([2],I),([m,h],BF)])
    for n in("aiter::fmoe_fp8_blockscale_g1u1","aiter::fmoe_g1u1"):
        op(n,[([m,h],BF),([m,h],F8),([e,2*i,h],F8),([e,h,i],F8),([9],I),([9],F32),([9],I),([2],I),str(k)])
    op("sglang_profiler::fused_moe_triton_kernels_invoke_fused_moe_kernel",[([m,h],BF),([e,i,h],F8),"",([m*k,i],BF),"","","","",([m,k],I)])
    op("vllm::triton_per_token_group_quant_fp8",[([m,h],BF),"128"])
    op("primus_turbo::quantize_fp8_tensorwise",[([m,h],BF),"24"])
    op("primus::quantize_mxfp4_dual",[([m,h],BF),"1"])
    op("aiter::gemm_afp4wfp4_",[([m,h],"unsigned char"),([i,h],"unsigned char"),([m,h//16],"unsigned char"),([i,h//16],"unsigned char")])
    op("aiter::batched_gemm_a16wfp4_",[([e,m,h],BF),([e,i,h//2],"unsigned char")])
    op("primus::fused_ln_modulate",[([m,3,h],BF),([3,h],BF),([3,h],BF)])
    op("primus::fused_ln_modulate_backward",[([m,3,h],BF),([m,3,h],BF),([m,3],F32)])
    op("aiter::gemm_a16w16_atomic_",[([m,h],BF),([i,h],BF),"",([m,i],F32)],"Cijk_Ailk_Bjlk_BBS_MT64x64x64")
    op("aiter::_gemm_a16w16_asm",[([m,h],BF),([i,h],BF),([m,i],F32)],"Cijk_Alik_Bljk_BBS_MT64x64x64")
    op("aiter::mha_fwd",[([2,m,8,64],BF),([2,m,2,64],BF),([2,m,2,64],BF),"0.","0.1","True"])
    op("aiter::wrapper_fmha_v3_fwd",[([1],BF),([2,m,8,64],BF),([2,m,2,64],BF),([2,m,2,64],BF),"0.","0.1","False"])
    op("aiter::wrapper_fmha_v3_bwd",[([1],BF),([2,m,8,64],BF),([2,m,2,64],BF),([2,m,2,64],BF),"","","","0.","0.1","True"])
    op("aiter::mha_bwd",[([2,m,8,64],BF),([2,m,8,64],BF),([2,m,2,64],BF),([2,m,2,64],BF),"","","0.","0.1","True"])
    op("flash_attn::_flash_attn_varlen_backward",[([m*2,8,64],BF),([m*2,8,64],BF),([m*2,2,64],BF),([m*2,2,64],BF),([1],BF),([1],BF),([1],BF),([1],BF),([1],BF),([3],I),([3],I),str(m),str(m),"0.","0.1","False"])
    op("EvoformerAttention",[([2,3,m,4,32],BF),([2,3,m,4,32],BF),([2,3,m,4,32],BF)])
    op("ConvBias_",[([2,4,14,14],BF),([8,4,3,3],BF),([8],BF),"1","1"])
    op("aiter::gelu_and_mul",[([m,i],BF),([m,2*i],BF)])
    op("aiter::gelu_tanh_and_mul",[([m,i],BF),([m,2*i],BF)])
    op("aiter::biased_grouped_topk_hip",[([m,e],F32),([e],F32),([m,k],F32),([m,k],I)])
    op("_Linear_yfwd_mm",[([m,h],F8),([h,i],F8)],"nvjet_qqtst_TNT")
    op("aten::convolution",[([2,4,14],BF),([8,4,3],BF),"","[2]","[1]","[1]","False","[0]","1"])
    op("aten::mm",[([m,h],BF),([h,i],F32)],strides=False)
    op("aten::add",[([m,h],BF),([m,h],F32),"1"],strides=False)
    op("aten::rms_norm_backward",[([m,h],BF),([m,h],BF),"[%d]"%h,([m,1],F32),([h],BF),"[True, False]"])
    op("aten::cudnn_batch_norm",[([2,4,6,6],BF),([4],BF),([4],BF),([4],F32),([4],F32),"False","0.1","1e-5"])
    op("flash_attn_3::fwd",[([2,m,8,64],BF),([2,m,8,64],BF),([2,m,8,64],BF)]+[""]*21+["True"])
json.dump({"schemaVersion":1,"deviceProperties":[{"id":0,"name":"AMD Instinct MI300X","numSms":304,"totalGlobalMem":206141652992}],"traceEvents":ev},gzip.open(sys.argv[1], "wt"))
