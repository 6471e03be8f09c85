from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProcessingMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROCESSING_MODE_UNSPECIFIED: _ClassVar[ProcessingMode]
    DISTRIBUTED_EPOCH: _ClassVar[ProcessingMode]
    PARALLEL_EPOCHS: _ClassVar[ProcessingMode]

class Compression(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPRESSION_UNSPECIFIED: _ClassVar[Compression]
    COMPRESSION_NONE: _ClassVar[Compression]
    COMPRESSION_AUTO: _ClassVar[Compression]
    COMPRESSION_SNAPPY: _ClassVar[Compression]
PROCESSING_MODE_UNSPECIFIED: ProcessingMode
DISTRIBUTED_EPOCH: ProcessingMode
PARALLEL_EPOCHS: ProcessingMode
COMPRESSION_UNSPECIFIED: Compression
COMPRESSION_NONE: Compression
COMPRESSION_AUTO: Compression
COMPRESSION_SNAPPY: Compression

class Versions(_message.Message):
    __slots__ = ("api", "cachew", "tensorflow")
    API_FIELD_NUMBER: _ClassVar[int]
    CACHEW_FIELD_NUMBER: _ClassVar[int]
    TENSORFLOW_FIELD_NUMBER: _ClassVar[int]
    api: int
    cachew: str
    tensorflow: str
    def __init__(self, api: _Optional[int] = ..., cachew: _Optional[str] = ..., tensorflow: _Optional[str] = ...) -> None: ...

class ServiceInfoRequest(_message.Message):
    __slots__ = ("client",)
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    client: Versions
    def __init__(self, client: _Optional[_Union[Versions, _Mapping]] = ...) -> None: ...

class ServiceInfo(_message.Message):
    __slots__ = ("versions", "name", "workers", "max_graph_bytes")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    MAX_GRAPH_BYTES_FIELD_NUMBER: _ClassVar[int]
    versions: Versions
    name: str
    workers: int
    max_graph_bytes: int
    def __init__(self, versions: _Optional[_Union[Versions, _Mapping]] = ..., name: _Optional[str] = ..., workers: _Optional[int] = ..., max_graph_bytes: _Optional[int] = ...) -> None: ...

class RegisterPipelineRequest(_message.Message):
    __slots__ = ("client", "client_id", "job_name", "fingerprint", "graph", "processing_mode", "compression", "cardinality", "single_worker", "single_worker_reasons", "num_consumers", "cross_trainer_cache", "host", "pid", "workers_deadline_s", "element_spec")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_MODE_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    CARDINALITY_FIELD_NUMBER: _ClassVar[int]
    SINGLE_WORKER_FIELD_NUMBER: _ClassVar[int]
    SINGLE_WORKER_REASONS_FIELD_NUMBER: _ClassVar[int]
    NUM_CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    CROSS_TRAINER_CACHE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    WORKERS_DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_SPEC_FIELD_NUMBER: _ClassVar[int]
    client: Versions
    client_id: str
    job_name: str
    fingerprint: str
    graph: bytes
    processing_mode: ProcessingMode
    compression: Compression
    cardinality: int
    single_worker: bool
    single_worker_reasons: _containers.RepeatedScalarFieldContainer[str]
    num_consumers: int
    cross_trainer_cache: bool
    host: str
    pid: int
    workers_deadline_s: float
    element_spec: bytes
    def __init__(self, client: _Optional[_Union[Versions, _Mapping]] = ..., client_id: _Optional[str] = ..., job_name: _Optional[str] = ..., fingerprint: _Optional[str] = ..., graph: _Optional[bytes] = ..., processing_mode: _Optional[_Union[ProcessingMode, str]] = ..., compression: _Optional[_Union[Compression, str]] = ..., cardinality: _Optional[int] = ..., single_worker: bool = ..., single_worker_reasons: _Optional[_Iterable[str]] = ..., num_consumers: _Optional[int] = ..., cross_trainer_cache: bool = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., workers_deadline_s: _Optional[float] = ..., element_spec: _Optional[bytes] = ...) -> None: ...

class RegisterPipelineResponse(_message.Message):
    __slots__ = ("job_id", "job_name", "versions", "notices")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    job_name: str
    versions: Versions
    notices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_id: _Optional[str] = ..., job_name: _Optional[str] = ..., versions: _Optional[_Union[Versions, _Mapping]] = ..., notices: _Optional[_Iterable[str]] = ...) -> None: ...

class ClientMessage(_message.Message):
    __slots__ = ("hello", "metrics", "bye")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    BYE_FIELD_NUMBER: _ClassVar[int]
    hello: ClientHello
    metrics: ClientMetrics
    bye: ClientBye
    def __init__(self, hello: _Optional[_Union[ClientHello, _Mapping]] = ..., metrics: _Optional[_Union[ClientMetrics, _Mapping]] = ..., bye: _Optional[_Union[ClientBye, _Mapping]] = ...) -> None: ...

class ClientHello(_message.Message):
    __slots__ = ("client_id", "job_id")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    job_id: str
    def __init__(self, client_id: _Optional[str] = ..., job_id: _Optional[str] = ...) -> None: ...

class EpochMetrics(_message.Message):
    __slots__ = ("iterator", "elements", "wait_s", "step_s", "span_s")
    ITERATOR_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    SPAN_S_FIELD_NUMBER: _ClassVar[int]
    iterator: int
    elements: int
    wait_s: float
    step_s: float
    span_s: float
    def __init__(self, iterator: _Optional[int] = ..., elements: _Optional[int] = ..., wait_s: _Optional[float] = ..., step_s: _Optional[float] = ..., span_s: _Optional[float] = ...) -> None: ...

class ClientMetrics(_message.Message):
    __slots__ = ("epochs",)
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    epochs: _containers.RepeatedCompositeFieldContainer[EpochMetrics]
    def __init__(self, epochs: _Optional[_Iterable[_Union[EpochMetrics, _Mapping]]] = ...) -> None: ...

class ClientBye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClientNotice(_message.Message):
    __slots__ = ("level", "text")
    class Level(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        INFO: _ClassVar[ClientNotice.Level]
        WARNING: _ClassVar[ClientNotice.Level]
    INFO: ClientNotice.Level
    WARNING: ClientNotice.Level
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    level: ClientNotice.Level
    text: str
    def __init__(self, level: _Optional[_Union[ClientNotice.Level, str]] = ..., text: _Optional[str] = ...) -> None: ...

class AgentMessage(_message.Message):
    __slots__ = ("hello", "report", "leaving", "beat")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    hello: AgentHello
    report: AssignmentReport
    leaving: AgentLeaving
    beat: AgentBeat
    def __init__(self, hello: _Optional[_Union[AgentHello, _Mapping]] = ..., report: _Optional[_Union[AssignmentReport, _Mapping]] = ..., leaving: _Optional[_Union[AgentLeaving, _Mapping]] = ..., beat: _Optional[_Union[AgentBeat, _Mapping]] = ...) -> None: ...

class AgentHello(_message.Message):
    __slots__ = ("versions", "agent_id", "host", "pid", "slots")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    versions: Versions
    agent_id: str
    host: str
    pid: int
    slots: int
    def __init__(self, versions: _Optional[_Union[Versions, _Mapping]] = ..., agent_id: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., slots: _Optional[int] = ...) -> None: ...

class AgentBeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AgentLeaving(_message.Message):
    __slots__ = ("grace_s",)
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    grace_s: float
    def __init__(self, grace_s: _Optional[float] = ...) -> None: ...

class AssignmentReport(_message.Message):
    __slots__ = ("assignment_id", "slot", "state", "end", "address", "pid", "error")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STARTING: _ClassVar[AssignmentReport.State]
        SERVING: _ClassVar[AssignmentReport.State]
        DRAINING: _ClassVar[AssignmentReport.State]
        ENDED: _ClassVar[AssignmentReport.State]
    STARTING: AssignmentReport.State
    SERVING: AssignmentReport.State
    DRAINING: AssignmentReport.State
    ENDED: AssignmentReport.State
    class End(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NOT_ENDED: _ClassVar[AssignmentReport.End]
        RELEASED: _ClassVar[AssignmentReport.End]
        DRAINED: _ClassVar[AssignmentReport.End]
        CRASHED: _ClassVar[AssignmentReport.End]
        FAILED: _ClassVar[AssignmentReport.End]
    NOT_ENDED: AssignmentReport.End
    RELEASED: AssignmentReport.End
    DRAINED: AssignmentReport.End
    CRASHED: AssignmentReport.End
    FAILED: AssignmentReport.End
    ASSIGNMENT_ID_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    assignment_id: str
    slot: int
    state: AssignmentReport.State
    end: AssignmentReport.End
    address: str
    pid: int
    error: str
    def __init__(self, assignment_id: _Optional[str] = ..., slot: _Optional[int] = ..., state: _Optional[_Union[AssignmentReport.State, str]] = ..., end: _Optional[_Union[AssignmentReport.End, str]] = ..., address: _Optional[str] = ..., pid: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class AgentCommand(_message.Message):
    __slots__ = ("welcome", "assign", "drain", "release", "shutdown")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    assign: Assign
    drain: Drain
    release: Release
    shutdown: AgentShutdown
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., assign: _Optional[_Union[Assign, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., shutdown: _Optional[_Union[AgentShutdown, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("service", "beat_interval_s")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    BEAT_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    service: str
    beat_interval_s: float
    def __init__(self, service: _Optional[str] = ..., beat_interval_s: _Optional[float] = ...) -> None: ...

class Assign(_message.Message):
    __slots__ = ("slot", "assignment_id", "job_name", "dispatch_address")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    slot: int
    assignment_id: str
    job_name: str
    dispatch_address: str
    def __init__(self, slot: _Optional[int] = ..., assignment_id: _Optional[str] = ..., job_name: _Optional[str] = ..., dispatch_address: _Optional[str] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("assignment_id",)
    ASSIGNMENT_ID_FIELD_NUMBER: _ClassVar[int]
    assignment_id: str
    def __init__(self, assignment_id: _Optional[str] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("assignment_id",)
    ASSIGNMENT_ID_FIELD_NUMBER: _ClassVar[int]
    assignment_id: str
    def __init__(self, assignment_id: _Optional[str] = ...) -> None: ...

class AgentShutdown(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ("id", "address", "pid", "state", "job")
    ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    id: str
    address: str
    pid: int
    state: str
    job: str
    def __init__(self, id: _Optional[str] = ..., address: _Optional[str] = ..., pid: _Optional[int] = ..., state: _Optional[str] = ..., job: _Optional[str] = ...) -> None: ...

class EpochStatus(_message.Message):
    __slots__ = ("epoch", "mode", "elements", "seconds", "workers", "repeated", "skipped", "state", "batch_time_ms", "wait_fraction")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BATCH_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FRACTION_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    mode: str
    elements: int
    seconds: float
    workers: int
    repeated: int
    skipped: int
    state: str
    batch_time_ms: float
    wait_fraction: float
    def __init__(self, epoch: _Optional[int] = ..., mode: _Optional[str] = ..., elements: _Optional[int] = ..., seconds: _Optional[float] = ..., workers: _Optional[int] = ..., repeated: _Optional[int] = ..., skipped: _Optional[int] = ..., state: _Optional[str] = ..., batch_time_ms: _Optional[float] = ..., wait_fraction: _Optional[float] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("job_name", "fingerprint", "mode", "workers", "target_workers", "batch_time_ms", "wait_fraction", "epochs", "state", "clients", "processing_mode", "notices")
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    TARGET_WORKERS_FIELD_NUMBER: _ClassVar[int]
    BATCH_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FRACTION_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_MODE_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    job_name: str
    fingerprint: str
    mode: str
    workers: int
    target_workers: int
    batch_time_ms: float
    wait_fraction: float
    epochs: _containers.RepeatedCompositeFieldContainer[EpochStatus]
    state: str
    clients: int
    processing_mode: str
    notices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_name: _Optional[str] = ..., fingerprint: _Optional[str] = ..., mode: _Optional[str] = ..., workers: _Optional[int] = ..., target_workers: _Optional[int] = ..., batch_time_ms: _Optional[float] = ..., wait_fraction: _Optional[float] = ..., epochs: _Optional[_Iterable[_Union[EpochStatus, _Mapping]]] = ..., state: _Optional[str] = ..., clients: _Optional[int] = ..., processing_mode: _Optional[str] = ..., notices: _Optional[_Iterable[str]] = ...) -> None: ...

class ServiceStatus(_message.Message):
    __slots__ = ("name", "endpoint", "state", "workers", "jobs", "versions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    endpoint: str
    state: str
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    versions: Versions
    def __init__(self, name: _Optional[str] = ..., endpoint: _Optional[str] = ..., state: _Optional[str] = ..., workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ..., versions: _Optional[_Union[Versions, _Mapping]] = ...) -> None: ...

class ShutdownRequest(_message.Message):
    __slots__ = ("drain", "reason")
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    drain: bool
    reason: str
    def __init__(self, drain: bool = ..., reason: _Optional[str] = ...) -> None: ...

class ShutdownResponse(_message.Message):
    __slots__ = ("pid",)
    PID_FIELD_NUMBER: _ClassVar[int]
    pid: int
    def __init__(self, pid: _Optional[int] = ...) -> None: ...
