# SPDX-License-Identifier: MIT
"""What a driver function does, told from its name and its parameters (see gen_driver_api.py).

Rules are tried in order and the first that fits decides; a function that takes a stream and fits
none submits work. So one that a newer header brings is watched, not overlooked.
"""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Classified:
    macro: str  # DRIVER, SUBMIT or SYNC
    kind: str
    flags: tuple
    stream0: str
    place: str
    stream: str  # C expression; "" where none is needed


@dataclasses.dataclass(frozen=True)
class Rule:
    pattern: str  # matches the whole query name
    kind: str
    flags: tuple = ()


# Where names mislead. Each says why.
EXCEPTIONS = [
    # Legacy launches, in stream 0 without saying so.
    Rule("cuLaunch|cuLaunchGrid", "SUBMITS"),
    # Instantiation uploads to hUploadStream if its flags ask for that.
    Rule("cuGraphInstantiateWithParams", "HARMLESS", ("SUBMITS",)),
    # Unmapping orders the context's streams before OpenGL's work.
    Rule("cuGLUnmapBufferObject", "SUBMITS"),
    # The stream of these is the one that EGL's frame comes from or goes to.
    Rule("cuEGLStreamConsumerAcquireFrame", "SUBMITS", ("CAN_WAIT",)),
    Rule("cuEGLStream(ConsumerReleaseFrame|Producer(PresentFrame|ReturnFrame))", "SUBMITS"),
    # Tell that work is complete when they answer so.
    Rule("cu(Stream|Event)Query", "SYNCHRONISES"),
    # Waits for writes of other devices, not for streams.
    Rule("cuFlushGPUDirectRDMAWrites", "HARMLESS"),
    # The thread's own mode: no stream is touched.
    Rule("cuThreadExchangeStreamCaptureMode", "CAPTURES"),
    # Ask what a capture does; those that change one come below.
    Rule("cuStream(IsCapturing|GetCaptureInfo)", "ATTRIBUTE"),
    Rule("cuStream(Create|CreateWithPriority|Destroy)|cuGreenCtxStreamCreate", "HARMLESS"),
    # Peer memory becomes visible or not; nothing is allocated.
    Rule("cuCtx(En|Dis)ablePeerAccess", "HARMLESS"),
    # Reserve and give back addresses, not memory.
    Rule("cuMemAddress(Reserve|Free)", "HARMLESS"),
    # Gives back what a trim can reach; a pool's destroy frees it when its last block goes.
    Rule("cuMemPool(TrimTo|Destroy)|cuDeviceGraphMemTrim", "FREES"),
    # Stops all CUDA work of a process until it is unlocked.
    Rule("cuCheckpointProcess(Lock|Checkpoint)", "CONTEXT", ("CAN_WAIT", "MAY_SYNCHRONISE")),
]

# Memory operations that wait for others: values that another process or device writes, external
# semaphores, events of other processes, host functions, whatever a graph holds.
CAN_WAIT = re.compile(
    r"cuStreamWaitValue\d+|cuStreamBatchMemOp|cuWaitExternalSemaphoresAsync|cuLaunchHostFunc|"
    r"cuStreamAddCallback|cuGraphLaunch|cuStreamWaitEvent|cu(Ctx|GreenCtx)WaitEvent|"
    r"cuGraphAdd(BatchMemOp|EventWait|ExternalSemaphoresWait|Host|ChildGraph|)Node")

# Plain driver calls that wait for all work of the context, or may.
MAY_SYNCHRONISE = re.compile(
    r"cuMem(Free|FreeHost|HostUnregister|HostRegister|HostAlloc|AllocHost)|cu(Mipmapped)?ArrayDestroy|"
    r"cuModule(Unload|Load\w*)|cuLibrary(Unload|Load\w*)|cuCtx(Destroy|Detach)|"
    r"cuDevicePrimaryCtx(Release|Reset)|cuGreenCtxDestroy|cuGraphicsUnregisterResource|"
    r"cuGLUnregisterBufferObject|cuIpcCloseMemHandle|cuDestroyExternalMemory")

RULES = [
    Rule(r"cuStream(Begin|End)\w*[Cc]apture\w*|cuStreamUpdateCaptureDependencies", "CAPTURES"),
    Rule(r"cu\w+Synchronize", "SYNCHRONISES"),
    Rule(r"cu(Ctx|GreenCtx)(Record|Wait)Event", "SUBMITS"),
    Rule(r"cuInit|cuGLInit|cu(Ctx|GreenCtx|GLCtx|VDPAUCtx)(Create|Destroy)|"
         r"cuCtx(Attach|Detach|PushCurrent|PopCurrent|SetCurrent|FromGreenCtx)|"
         r"cuDevicePrimaryCtx(Retain|Release|Reset)|cuCheckpointProcess\w+", "CONTEXT"),
    Rule(r"cuMem(Free|FreeAsync|FreeHost|Release|HostUnregister|Unmap)|cu(Mipmapped)?ArrayDestroy|"
         r"cuIpcCloseMemHandle|cuDestroyExternalMemory|cu(Module|Library)Unload|"
         r"cuGraphicsUnregisterResource|cuGLUnregisterBufferObject|cuGraphAddMemFreeNode", "FREES"),
    Rule(r"cuMem(Alloc\w*|HostAlloc|HostRegister|Create|ImportFromShareableHandle)|"
         r"cuArray(3D)?Create|cuMipmappedArrayCreate|cuMemPool(Create|Import\w+)|"
         r"cuIpcOpenMemHandle|cuImportExternalMemory|cuExternalMemoryGetMapped\w+|"
         r"cuGraphAddMemAllocNode|cuMulticastCreate|cuGraphics\w+Register\w+|"
         r"cuGLRegisterBufferObject|cuModuleLoad\w*|cuLibraryLoad\w+|cuLink(AddData|AddFile|Complete)",
         "ALLOCATES"),
    Rule(r"cuMemGetInfo|cuDeviceTotalMem|cu(Mipmapped)?ArrayGetMemoryRequirements|"
         r"cuDeviceGetGraphMemAttribute", "INFORMS"),
    Rule(r"cuIpcOpenEventHandle|cuImportExternalSemaphore|"
         r"cuGraphAdd(BatchMemOp|EventWait|ExternalSemaphoresWait|Host|ChildGraph|)Node", "CAN_WAIT"),
    Rule(r"cu\w*(Get|Attribute|CanAccess|Occupancy|Enumerate|ComputeCapability|IsLoaded)\w*|"
         r"cuEventElapsedTime|cuStreamCopyAttributes|cuMemRetainAllocationHandle", "ATTRIBUTE"),
]


def find_rule(query):
    for rule in EXCEPTIONS + RULES:
        if re.fullmatch(rule.pattern, query):
            return rule
    return None


# What only asks, though a stream leads to the answer. Elsewhere "Attribute" in the name of a function
# that takes a stream says how it does its work (cuMemcpyWithAttributesAsync, in headers of 13.5).
ASKS_ABOUT_STREAM = re.compile(r"cu(Stream|Occupancy)\w+")


def kind_of(function, place):
    rule = find_rule(function.query)
    takes_stream = place != "NONE"
    if rule and rule.kind == "ATTRIBUTE" and takes_stream and not ASKS_ABOUT_STREAM.fullmatch(
            function.query):
        rule = None
    if rule:
        return rule.kind, set(rule.flags)
    return ("SUBMITS" if takes_stream else "HARMLESS"), set()


def place_of(function, uses_default):
    if function.place:
        return function.place, function.stream
    if re.fullmatch(r"cu(Ctx|GreenCtx)(Record|Wait)Event|cuCtxSynchronize", function.query):
        return "CONTEXT", ""
    if uses_default:
        return "DEFAULT", ""
    if function.has_event and re.fullmatch(r"cuEvent(Query|Synchronize)", function.query):
        return "EVENT", ""
    return "NONE", ""


def stream0_of(function, place):
    if function.suffix:
        return "PER_THREAD"
    # A stream's life takes a handle that somebody made.
    if place in ("NONE", "EVENT", "CONTEXT") or re.match(r"cuStream(Create|Destroy)|cuGreenCtxStream",
                                                         function.query):
        return "NONE"
    return "LEGACY"


def classify(function, default_queries):
    """What a function does; default_queries: names whose stream is stream 0, unsaid."""
    uses_default = function.query in default_queries or bool(
        re.fullmatch(r"cuLaunch|cuLaunchGrid|cuGLUnmapBufferObject", function.query))
    place, stream = place_of(function, uses_default)
    kind, flags = kind_of(function, place)
    submits = kind == "SUBMITS" or "SUBMITS" in flags
    if place in ("PARAM", "POINTER", "MEMBER", "ARRAY") and kind in ("ALLOCATES", "FREES"):
        submits = True
        flags.add("SUBMITS")
    # Copies and memsets in an unsaid stream 0: the copies wait for their end, the memsets may not.
    if submits and place == "DEFAULT" and function.query.startswith("cuMemcpy"):
        flags.add("MAY_SYNCHRONISE")
    if CAN_WAIT.fullmatch(function.query) and kind != "CAN_WAIT":
        flags.add("CAN_WAIT")
    if MAY_SYNCHRONISE.fullmatch(function.query):
        flags.add("MAY_SYNCHRONISE")
    macro = "SUBMIT" if submits else "SYNC" if kind == "SYNCHRONISES" else "DRIVER"
    return Classified(macro, kind, tuple(sorted(flags)), stream0_of(function, place), place, stream)
