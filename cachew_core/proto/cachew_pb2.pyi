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
    __slots__ = ("versions", "name", "workers", "max_graph_bytes", "cache_proof_path", "cache_proof_sha256", "cache_policy")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    MAX_GRAPH_BYTES_FIELD_NUMBER: _ClassVar[int]
    CACHE_PROOF_PATH_FIELD_NUMBER: _ClassVar[int]
    CACHE_PROOF_SHA256_FIELD_NUMBER: _ClassVar[int]
    CACHE_POLICY_FIELD_NUMBER: _ClassVar[int]
    versions: Versions
    name: str
    workers: int
    max_graph_bytes: int
    cache_proof_path: str
    cache_proof_sha256: str
    cache_policy: str
    def __init__(self, versions: _Optional[_Union[Versions, _Mapping]] = ..., name: _Optional[str] = ..., workers: _Optional[int] = ..., max_graph_bytes: _Optional[int] = ..., cache_proof_path: _Optional[str] = ..., cache_proof_sha256: _Optional[str] = ..., cache_policy: _Optional[str] = ...) -> None: ...

class RegisterPipelineRequest(_message.Message):
    __slots__ = ("client", "client_id", "job_name", "fingerprint", "graph", "processing_mode", "compression", "cardinality", "single_worker", "single_worker_reasons", "num_consumers", "cross_trainer_cache", "host", "pid", "workers_deadline_s", "element_spec", "cache_policy", "sources", "trust_sources", "cache_proof", "dispatcher_address", "scaling_policy", "max_workers", "weight", "priority", "tenant")
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
    CACHE_POLICY_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    TRUST_SOURCES_FIELD_NUMBER: _ClassVar[int]
    CACHE_PROOF_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SCALING_POLICY_FIELD_NUMBER: _ClassVar[int]
    MAX_WORKERS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
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
    cache_policy: str
    sources: _containers.RepeatedScalarFieldContainer[str]
    trust_sources: bool
    cache_proof: str
    dispatcher_address: str
    scaling_policy: str
    max_workers: int
    weight: float
    priority: int
    tenant: str
    def __init__(self, client: _Optional[_Union[Versions, _Mapping]] = ..., client_id: _Optional[str] = ..., job_name: _Optional[str] = ..., fingerprint: _Optional[str] = ..., graph: _Optional[bytes] = ..., processing_mode: _Optional[_Union[ProcessingMode, str]] = ..., compression: _Optional[_Union[Compression, str]] = ..., cardinality: _Optional[int] = ..., single_worker: bool = ..., single_worker_reasons: _Optional[_Iterable[str]] = ..., num_consumers: _Optional[int] = ..., cross_trainer_cache: bool = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., workers_deadline_s: _Optional[float] = ..., element_spec: _Optional[bytes] = ..., cache_policy: _Optional[str] = ..., sources: _Optional[_Iterable[str]] = ..., trust_sources: bool = ..., cache_proof: _Optional[str] = ..., dispatcher_address: _Optional[str] = ..., scaling_policy: _Optional[str] = ..., max_workers: _Optional[int] = ..., weight: _Optional[float] = ..., priority: _Optional[int] = ..., tenant: _Optional[str] = ...) -> None: ...

class RegisterPipelineResponse(_message.Message):
    __slots__ = ("job_id", "job_name", "versions", "notices", "direct_reads")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    DIRECT_READS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    job_name: str
    versions: Versions
    notices: _containers.RepeatedScalarFieldContainer[str]
    direct_reads: bool
    def __init__(self, job_id: _Optional[str] = ..., job_name: _Optional[str] = ..., versions: _Optional[_Union[Versions, _Mapping]] = ..., notices: _Optional[_Iterable[str]] = ..., direct_reads: bool = ...) -> None: ...

class ExplainFailureRequest(_message.Message):
    __slots__ = ("client_id", "job_id", "error")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    job_id: str
    error: str
    def __init__(self, client_id: _Optional[str] = ..., job_id: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class FailureExplanation(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("epochs", "cpu_share")
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    CPU_SHARE_FIELD_NUMBER: _ClassVar[int]
    epochs: _containers.RepeatedCompositeFieldContainer[EpochMetrics]
    cpu_share: float
    def __init__(self, epochs: _Optional[_Iterable[_Union[EpochMetrics, _Mapping]]] = ..., cpu_share: _Optional[float] = ...) -> None: ...

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
    __slots__ = ("hello", "report", "leaving", "beat", "profile", "ignored", "sources", "stage")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    IGNORED_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    hello: AgentHello
    report: AssignmentReport
    leaving: AgentLeaving
    beat: AgentBeat
    profile: ProfileResult
    ignored: IgnoredErrors
    sources: SourcesSeen
    stage: StageResult
    def __init__(self, hello: _Optional[_Union[AgentHello, _Mapping]] = ..., report: _Optional[_Union[AssignmentReport, _Mapping]] = ..., leaving: _Optional[_Union[AgentLeaving, _Mapping]] = ..., beat: _Optional[_Union[AgentBeat, _Mapping]] = ..., profile: _Optional[_Union[ProfileResult, _Mapping]] = ..., ignored: _Optional[_Union[IgnoredErrors, _Mapping]] = ..., sources: _Optional[_Union[SourcesSeen, _Mapping]] = ..., stage: _Optional[_Union[StageResult, _Mapping]] = ...) -> None: ...

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

class IgnoredErrors(_message.Message):
    __slots__ = ("assignment_id", "count", "example")
    ASSIGNMENT_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    assignment_id: str
    count: int
    example: str
    def __init__(self, assignment_id: _Optional[str] = ..., count: _Optional[int] = ..., example: _Optional[str] = ...) -> None: ...

class AgentLeaving(_message.Message):
    __slots__ = ("grace_s",)
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    grace_s: float
    def __init__(self, grace_s: _Optional[float] = ...) -> None: ...

class AssignmentReport(_message.Message):
    __slots__ = ("assignment_id", "slot", "state", "end", "address", "pid", "error", "splits", "dry", "over_memory_bytes")
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
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    DRY_FIELD_NUMBER: _ClassVar[int]
    OVER_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    assignment_id: str
    slot: int
    state: AssignmentReport.State
    end: AssignmentReport.End
    address: str
    pid: int
    error: str
    splits: int
    dry: _containers.RepeatedScalarFieldContainer[int]
    over_memory_bytes: int
    def __init__(self, assignment_id: _Optional[str] = ..., slot: _Optional[int] = ..., state: _Optional[_Union[AssignmentReport.State, str]] = ..., end: _Optional[_Union[AssignmentReport.End, str]] = ..., address: _Optional[str] = ..., pid: _Optional[int] = ..., error: _Optional[str] = ..., splits: _Optional[int] = ..., dry: _Optional[_Iterable[int]] = ..., over_memory_bytes: _Optional[int] = ...) -> None: ...

class AgentCommand(_message.Message):
    __slots__ = ("welcome", "assign", "drain", "release", "shutdown", "profile", "sources", "stage")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    assign: Assign
    drain: Drain
    release: Release
    shutdown: AgentShutdown
    profile: Profile
    sources: SeeSources
    stage: StageOrder
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., assign: _Optional[_Union[Assign, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., shutdown: _Optional[_Union[AgentShutdown, _Mapping]] = ..., profile: _Optional[_Union[Profile, _Mapping]] = ..., sources: _Optional[_Union[SeeSources, _Mapping]] = ..., stage: _Optional[_Union[StageOrder, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("service", "beat_interval_s")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    BEAT_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    service: str
    beat_interval_s: float
    def __init__(self, service: _Optional[str] = ..., beat_interval_s: _Optional[float] = ...) -> None: ...

class Assign(_message.Message):
    __slots__ = ("slot", "assignment_id", "job_name", "dispatch_address", "first")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    slot: int
    assignment_id: str
    job_name: str
    dispatch_address: str
    first: _containers.RepeatedCompositeFieldContainer[StageOrder]
    def __init__(self, slot: _Optional[int] = ..., assignment_id: _Optional[str] = ..., job_name: _Optional[str] = ..., dispatch_address: _Optional[str] = ..., first: _Optional[_Iterable[_Union[StageOrder, _Mapping]]] = ...) -> None: ...

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

class Profile(_message.Message):
    __slots__ = ("profile_id", "graph", "points", "scratch", "budget_s", "batches")
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    SCRATCH_FIELD_NUMBER: _ClassVar[int]
    BUDGET_S_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    profile_id: str
    graph: bytes
    points: _containers.RepeatedScalarFieldContainer[str]
    scratch: str
    budget_s: float
    batches: int
    def __init__(self, profile_id: _Optional[str] = ..., graph: _Optional[bytes] = ..., points: _Optional[_Iterable[str]] = ..., scratch: _Optional[str] = ..., budget_s: _Optional[float] = ..., batches: _Optional[int] = ...) -> None: ...

class ProfileResult(_message.Message):
    __slots__ = ("profile_id", "json", "error")
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    profile_id: str
    json: str
    error: str
    def __init__(self, profile_id: _Optional[str] = ..., json: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class SeeSources(_message.Message):
    __slots__ = ("request_id", "patterns", "graph", "budget_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    BUDGET_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    patterns: _containers.RepeatedScalarFieldContainer[str]
    graph: bytes
    budget_s: float
    def __init__(self, request_id: _Optional[str] = ..., patterns: _Optional[_Iterable[str]] = ..., graph: _Optional[bytes] = ..., budget_s: _Optional[float] = ...) -> None: ...

class SourcesSeen(_message.Message):
    __slots__ = ("request_id", "digest", "problem", "broken")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    BROKEN_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    digest: str
    problem: str
    broken: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., digest: _Optional[str] = ..., problem: _Optional[str] = ..., broken: _Optional[_Iterable[str]] = ...) -> None: ...

class StageOrder(_message.Message):
    __slots__ = ("order_id", "bucket", "folder", "send", "fetch", "tidy", "remove", "keep")
    ORDER_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    TIDY_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    order_id: str
    bucket: str
    folder: str
    send: str
    fetch: StagedEntry
    tidy: StagedNames
    remove: str
    keep: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, order_id: _Optional[str] = ..., bucket: _Optional[str] = ..., folder: _Optional[str] = ..., send: _Optional[str] = ..., fetch: _Optional[_Union[StagedEntry, _Mapping]] = ..., tidy: _Optional[_Union[StagedNames, _Mapping]] = ..., remove: _Optional[str] = ..., keep: _Optional[_Iterable[str]] = ...) -> None: ...

class StagedEntry(_message.Message):
    __slots__ = ("name", "files")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    name: str
    files: _containers.RepeatedCompositeFieldContainer[StagedFile]
    def __init__(self, name: _Optional[str] = ..., files: _Optional[_Iterable[_Union[StagedFile, _Mapping]]] = ...) -> None: ...

class StagedNames(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class StagedFile(_message.Message):
    __slots__ = ("path", "bytes", "crc32")
    PATH_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    path: str
    bytes: int
    crc32: int
    def __init__(self, path: _Optional[str] = ..., bytes: _Optional[int] = ..., crc32: _Optional[int] = ...) -> None: ...

class StagedRun(_message.Message):
    __slots__ = ("files", "elements")
    FILES_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[StagedFile]
    elements: int
    def __init__(self, files: _Optional[_Iterable[_Union[StagedFile, _Mapping]]] = ..., elements: _Optional[int] = ...) -> None: ...

class StageResult(_message.Message):
    __slots__ = ("order_id", "failure", "error", "runs")
    class Failure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[StageResult.Failure]
        FAILED: _ClassVar[StageResult.Failure]
        INCOMPLETE: _ClassVar[StageResult.Failure]
        DAMAGED: _ClassVar[StageResult.Failure]
    NONE: StageResult.Failure
    FAILED: StageResult.Failure
    INCOMPLETE: StageResult.Failure
    DAMAGED: StageResult.Failure
    ORDER_ID_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    order_id: str
    failure: StageResult.Failure
    error: str
    runs: _containers.RepeatedCompositeFieldContainer[StagedRun]
    def __init__(self, order_id: _Optional[str] = ..., failure: _Optional[_Union[StageResult.Failure, str]] = ..., error: _Optional[str] = ..., runs: _Optional[_Iterable[_Union[StagedRun, _Mapping]]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ScaleJobRequest(_message.Message):
    __slots__ = ("job_name", "workers")
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    job_name: str
    workers: int
    def __init__(self, job_name: _Optional[str] = ..., workers: _Optional[int] = ...) -> None: ...

class ScaleJobResponse(_message.Message):
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
    __slots__ = ("epoch", "mode", "elements", "seconds", "workers", "repeated", "skipped", "state", "batch_time_ms", "wait_fraction", "direct", "ignored_errors", "worker_seconds", "wait_s", "step_s")
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
    DIRECT_FIELD_NUMBER: _ClassVar[int]
    IGNORED_ERRORS_FIELD_NUMBER: _ClassVar[int]
    WORKER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
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
    direct: bool
    ignored_errors: int
    worker_seconds: float
    wait_s: float
    step_s: float
    def __init__(self, epoch: _Optional[int] = ..., mode: _Optional[str] = ..., elements: _Optional[int] = ..., seconds: _Optional[float] = ..., workers: _Optional[int] = ..., repeated: _Optional[int] = ..., skipped: _Optional[int] = ..., state: _Optional[str] = ..., batch_time_ms: _Optional[float] = ..., wait_fraction: _Optional[float] = ..., direct: bool = ..., ignored_errors: _Optional[int] = ..., worker_seconds: _Optional[float] = ..., wait_s: _Optional[float] = ..., step_s: _Optional[float] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("job_name", "fingerprint", "mode", "workers", "target_workers", "batch_time_ms", "wait_fraction", "epochs", "state", "clients", "processing_mode", "notices", "cache_policy", "decisions", "scaling_policy", "wanted_workers", "scaling", "tenant", "bottleneck")
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
    CACHE_POLICY_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    SCALING_POLICY_FIELD_NUMBER: _ClassVar[int]
    WANTED_WORKERS_FIELD_NUMBER: _ClassVar[int]
    SCALING_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    BOTTLENECK_FIELD_NUMBER: _ClassVar[int]
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
    cache_policy: str
    decisions: _containers.RepeatedCompositeFieldContainer[CacheDecision]
    scaling_policy: str
    wanted_workers: int
    scaling: _containers.RepeatedCompositeFieldContainer[ScalingDecision]
    tenant: str
    bottleneck: str
    def __init__(self, job_name: _Optional[str] = ..., fingerprint: _Optional[str] = ..., mode: _Optional[str] = ..., workers: _Optional[int] = ..., target_workers: _Optional[int] = ..., batch_time_ms: _Optional[float] = ..., wait_fraction: _Optional[float] = ..., epochs: _Optional[_Iterable[_Union[EpochStatus, _Mapping]]] = ..., state: _Optional[str] = ..., clients: _Optional[int] = ..., processing_mode: _Optional[str] = ..., notices: _Optional[_Iterable[str]] = ..., cache_policy: _Optional[str] = ..., decisions: _Optional[_Iterable[_Union[CacheDecision, _Mapping]]] = ..., scaling_policy: _Optional[str] = ..., wanted_workers: _Optional[int] = ..., scaling: _Optional[_Iterable[_Union[ScalingDecision, _Mapping]]] = ..., tenant: _Optional[str] = ..., bottleneck: _Optional[str] = ...) -> None: ...

class ScalingDecision(_message.Message):
    __slots__ = ("at_s", "epoch", "mode", "workers", "reason", "settled")
    AT_S_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    at_s: float
    epoch: int
    mode: str
    workers: int
    reason: str
    settled: bool
    def __init__(self, at_s: _Optional[float] = ..., epoch: _Optional[int] = ..., mode: _Optional[str] = ..., workers: _Optional[int] = ..., reason: _Optional[str] = ..., settled: bool = ...) -> None: ...

class CacheDecision(_message.Message):
    __slots__ = ("epoch", "mode", "point", "reason", "figures", "direct")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    POINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    DIRECT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    mode: str
    point: str
    reason: str
    figures: str
    direct: bool
    def __init__(self, epoch: _Optional[int] = ..., mode: _Optional[str] = ..., point: _Optional[str] = ..., reason: _Optional[str] = ..., figures: _Optional[str] = ..., direct: bool = ...) -> None: ...

class ServiceStatus(_message.Message):
    __slots__ = ("name", "endpoint", "state", "workers", "jobs", "versions", "page", "notices", "stored")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    name: str
    endpoint: str
    state: str
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    versions: Versions
    page: str
    notices: _containers.RepeatedScalarFieldContainer[str]
    stored: _containers.RepeatedCompositeFieldContainer[StoredEntry]
    def __init__(self, name: _Optional[str] = ..., endpoint: _Optional[str] = ..., state: _Optional[str] = ..., workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ..., versions: _Optional[_Union[Versions, _Mapping]] = ..., page: _Optional[str] = ..., notices: _Optional[_Iterable[str]] = ..., stored: _Optional[_Iterable[_Union[StoredEntry, _Mapping]]] = ...) -> None: ...

class StoredEntry(_message.Message):
    __slots__ = ("key", "job", "point", "elements", "bytes", "created_at", "last_used_at")
    KEY_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    POINT_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_AT_FIELD_NUMBER: _ClassVar[int]
    key: str
    job: str
    point: str
    elements: int
    bytes: int
    created_at: float
    last_used_at: float
    def __init__(self, key: _Optional[str] = ..., job: _Optional[str] = ..., point: _Optional[str] = ..., elements: _Optional[int] = ..., bytes: _Optional[int] = ..., created_at: _Optional[float] = ..., last_used_at: _Optional[float] = ...) -> None: ...

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
