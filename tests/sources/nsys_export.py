"""Small exports of Nsight Systems, made by hand: tables as some version has them, or fewer."""

import sqlite3

PID, THREAD = 4242, 77
PROCESS = PID << 24
GLOBAL_TID = PROCESS | THREAD

COLUMNS = {
    "StringIds": "id, value",
    "ThreadNames": "nameId, priority, globalTid",
    "TARGET_INFO_GPU": "id, name",
    "TARGET_INFO_CUDA_DEVICE": "gpuId, cudaId, pid",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
    "ANALYSIS_DETAILS": "startTime",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, shortName, gridX, gridY,"
        " gridZ, blockX, blockY, blockZ, registersPerThread, staticSharedMemory, dynamicSharedMemory, graphNodeId"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, streamId, correlationId, globalPid, bytes, copyKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start, end, deviceId, streamId, correlationId, globalPid, graphId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, globalTid, correlationId, nameId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start, end, correlationId, globalPid",
    "CUBLAS_EVENTS": "start, end, globalTid, nameId",
    "OSRT_API": "start, end, globalTid, correlationId, nameId",
    "NVTX_EVENTS": "start, end, eventType, text, textId, globalTid, domainId",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": ("start, bytes, memoryOperationType, memKind, deviceId, globalPid, virtualAddress"),
    "GPU_METRICS": "timestamp, typeId, metricId, value",
    "TARGET_INFO_GPU_METRICS": "typeId, metricId, metricName",
    "SOMETHING_NEW": "timestamp, value",
}


class Export:
    """`Export(path).add("CUPTI_ACTIVITY_KIND_KERNEL", start=1, end=2, …)`; tables appear with their first row."""

    def __init__(self, path):
        self.path = path
        self.connection = sqlite3.connect(path)
        self._made = {}
        self._strings = {}

    def add(self, table, **values):
        names = [name.strip() for name in COLUMNS[table].split(",")]
        if table not in self._made:
            self._made[table] = names
            quoted = ", ".join(f'"{name}"' for name in names)
            self.connection.execute(f"CREATE TABLE {table} ({quoted})")
        row = [values.pop(name, None) for name in names]
        assert not values, values
        self.connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        return self

    def string(self, text):
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.add("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def kernel(self, name, start, end, *, device=0, stream=7, correlation=None, process=PROCESS, **more):
        return self.add(
            "CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, deviceId=device, contextId=1, streamId=stream,
            correlationId=correlation, globalPid=process, demangledName=self.string(name), **more,
        )  # fmt: skip

    def call(self, name, start, end, correlation, *, thread=GLOBAL_TID):
        return self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, globalTid=thread, correlationId=correlation,
            nameId=self.string(name),
        )  # fmt: skip

    def range(self, text, start, end, *, event_type=59, thread=GLOBAL_TID, domain=0):
        return self.add(
            "NVTX_EVENTS", start=start, end=end, eventType=event_type, text=text, globalTid=thread, domainId=domain
        )

    def close(self):
        self.connection.commit()
        self.connection.close()
        return self.path
