from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Compression(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPRESSION_UNSPECIFIED: _ClassVar[Compression]
    COMPRESSION_OFF: _ClassVar[Compression]
    COMPRESSION_SNAPPY: _ClassVar[Compression]
    COMPRESSION_FORCED_SNAPPY: _ClassVar[Compression]

class TargetWorkers(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TARGET_WORKERS_UNSPECIFIED: _ClassVar[TargetWorkers]
    TARGET_WORKERS_AUTO: _ClassVar[TargetWorkers]
    TARGET_WORKERS_ANY: _ClassVar[TargetWorkers]
    TARGET_WORKERS_LOCAL: _ClassVar[TargetWorkers]
COMPRESSION_UNSPECIFIED: Compression
COMPRESSION_OFF: Compression
COMPRESSION_SNAPPY: Compression
COMPRESSION_FORCED_SNAPPY: Compression
TARGET_WORKERS_UNSPECIFIED: TargetWorkers
TARGET_WORKERS_AUTO: TargetWorkers
TARGET_WORKERS_ANY: TargetWorkers
TARGET_WORKERS_LOCAL: TargetWorkers

class ProcessingModeDef(_message.Message):
    __slots__ = ("sharding_policy",)
    class ShardingPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OFF: _ClassVar[ProcessingModeDef.ShardingPolicy]
        DYNAMIC: _ClassVar[ProcessingModeDef.ShardingPolicy]
    OFF: ProcessingModeDef.ShardingPolicy
    DYNAMIC: ProcessingModeDef.ShardingPolicy
    SHARDING_POLICY_FIELD_NUMBER: _ClassVar[int]
    sharding_policy: ProcessingModeDef.ShardingPolicy
    def __init__(self, sharding_policy: _Optional[_Union[ProcessingModeDef.ShardingPolicy, str]] = ...) -> None: ...

class DatasetDef(_message.Message):
    __slots__ = ("graph",)
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    graph: bytes
    def __init__(self, graph: _Optional[bytes] = ...) -> None: ...

class DataServiceMetadata(_message.Message):
    __slots__ = ("element_spec", "compression", "cardinality")
    ELEMENT_SPEC_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    CARDINALITY_FIELD_NUMBER: _ClassVar[int]
    element_spec: bytes
    compression: Compression
    cardinality: int
    def __init__(self, element_spec: _Optional[bytes] = ..., compression: _Optional[_Union[Compression, str]] = ..., cardinality: _Optional[int] = ...) -> None: ...

class DataServiceConfig(_message.Message):
    __slots__ = ("deployment_mode",)
    class DeploymentMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEPLOYMENT_MODE_UNSPECIFIED: _ClassVar[DataServiceConfig.DeploymentMode]
        DEPLOYMENT_MODE_COLOCATED: _ClassVar[DataServiceConfig.DeploymentMode]
        DEPLOYMENT_MODE_REMOTE: _ClassVar[DataServiceConfig.DeploymentMode]
        DEPLOYMENT_MODE_HYBRID: _ClassVar[DataServiceConfig.DeploymentMode]
    DEPLOYMENT_MODE_UNSPECIFIED: DataServiceConfig.DeploymentMode
    DEPLOYMENT_MODE_COLOCATED: DataServiceConfig.DeploymentMode
    DEPLOYMENT_MODE_REMOTE: DataServiceConfig.DeploymentMode
    DEPLOYMENT_MODE_HYBRID: DataServiceConfig.DeploymentMode
    DEPLOYMENT_MODE_FIELD_NUMBER: _ClassVar[int]
    deployment_mode: DataServiceConfig.DeploymentMode
    def __init__(self, deployment_mode: _Optional[_Union[DataServiceConfig.DeploymentMode, str]] = ...) -> None: ...

class GetVersionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetVersionResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class GetOrRegisterDatasetRequest(_message.Message):
    __slots__ = ("dataset", "metadata", "dataset_id")
    DATASET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    DATASET_ID_FIELD_NUMBER: _ClassVar[int]
    dataset: DatasetDef
    metadata: DataServiceMetadata
    dataset_id: str
    def __init__(self, dataset: _Optional[_Union[DatasetDef, _Mapping]] = ..., metadata: _Optional[_Union[DataServiceMetadata, _Mapping]] = ..., dataset_id: _Optional[str] = ...) -> None: ...

class GetOrRegisterDatasetResponse(_message.Message):
    __slots__ = ("dataset_id",)
    DATASET_ID_FIELD_NUMBER: _ClassVar[int]
    dataset_id: str
    def __init__(self, dataset_id: _Optional[str] = ...) -> None: ...

class GetDataServiceMetadataRequest(_message.Message):
    __slots__ = ("dataset_id",)
    DATASET_ID_FIELD_NUMBER: _ClassVar[int]
    dataset_id: str
    def __init__(self, dataset_id: _Optional[str] = ...) -> None: ...

class GetDataServiceMetadataResponse(_message.Message):
    __slots__ = ("metadata",)
    METADATA_FIELD_NUMBER: _ClassVar[int]
    metadata: DataServiceMetadata
    def __init__(self, metadata: _Optional[_Union[DataServiceMetadata, _Mapping]] = ...) -> None: ...

class GetDataServiceConfigResponse(_message.Message):
    __slots__ = ("config",)
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    config: DataServiceConfig
    def __init__(self, config: _Optional[_Union[DataServiceConfig, _Mapping]] = ...) -> None: ...

class GetOrCreateJobRequest(_message.Message):
    __slots__ = ("dataset_id", "processing_mode_def", "job_name", "num_consumers", "use_cross_trainer_cache", "target_workers")
    DATASET_ID_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_MODE_DEF_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    USE_CROSS_TRAINER_CACHE_FIELD_NUMBER: _ClassVar[int]
    TARGET_WORKERS_FIELD_NUMBER: _ClassVar[int]
    dataset_id: str
    processing_mode_def: ProcessingModeDef
    job_name: str
    num_consumers: int
    use_cross_trainer_cache: bool
    target_workers: TargetWorkers
    def __init__(self, dataset_id: _Optional[str] = ..., processing_mode_def: _Optional[_Union[ProcessingModeDef, _Mapping]] = ..., job_name: _Optional[str] = ..., num_consumers: _Optional[int] = ..., use_cross_trainer_cache: bool = ..., target_workers: _Optional[_Union[TargetWorkers, str]] = ...) -> None: ...

class GetOrCreateJobResponse(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class GetOrCreateIterationRequest(_message.Message):
    __slots__ = ("job_id", "repetition")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    REPETITION_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    repetition: int
    def __init__(self, job_id: _Optional[int] = ..., repetition: _Optional[int] = ...) -> None: ...

class GetOrCreateIterationResponse(_message.Message):
    __slots__ = ("iteration_client_id",)
    ITERATION_CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    iteration_client_id: int
    def __init__(self, iteration_client_id: _Optional[int] = ...) -> None: ...

class MaybeRemoveTaskRequest(_message.Message):
    __slots__ = ("task_id", "consumer_index", "round")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_INDEX_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    consumer_index: int
    round: int
    def __init__(self, task_id: _Optional[int] = ..., consumer_index: _Optional[int] = ..., round: _Optional[int] = ...) -> None: ...

class ReleaseIterationClientRequest(_message.Message):
    __slots__ = ("iteration_client_id",)
    ITERATION_CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    iteration_client_id: int
    def __init__(self, iteration_client_id: _Optional[int] = ...) -> None: ...

class ReleaseIterationClientResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TaskInfo(_message.Message):
    __slots__ = ("worker_address", "task_id", "iteration_id", "transfer_servers")
    WORKER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ITERATION_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_SERVERS_FIELD_NUMBER: _ClassVar[int]
    worker_address: str
    task_id: int
    iteration_id: int
    transfer_servers: _containers.RepeatedCompositeFieldContainer[DataTransferServerInfo]
    def __init__(self, worker_address: _Optional[str] = ..., task_id: _Optional[int] = ..., iteration_id: _Optional[int] = ..., transfer_servers: _Optional[_Iterable[_Union[DataTransferServerInfo, _Mapping]]] = ...) -> None: ...

class DataTransferServerInfo(_message.Message):
    __slots__ = ("protocol", "address")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    protocol: str
    address: str
    def __init__(self, protocol: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class ClientHeartbeatRequest(_message.Message):
    __slots__ = ("iteration_client_id", "current_round", "blocked_round", "target_processing_time_nsec")
    ITERATION_CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CURRENT_ROUND_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_ROUND_FIELD_NUMBER: _ClassVar[int]
    TARGET_PROCESSING_TIME_NSEC_FIELD_NUMBER: _ClassVar[int]
    iteration_client_id: int
    current_round: int
    blocked_round: int
    target_processing_time_nsec: float
    def __init__(self, iteration_client_id: _Optional[int] = ..., current_round: _Optional[int] = ..., blocked_round: _Optional[int] = ..., target_processing_time_nsec: _Optional[float] = ...) -> None: ...

class ClientHeartbeatResponse(_message.Message):
    __slots__ = ("task_info", "iteration_finished")
    TASK_INFO_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FINISHED_FIELD_NUMBER: _ClassVar[int]
    task_info: _containers.RepeatedCompositeFieldContainer[TaskInfo]
    iteration_finished: bool
    def __init__(self, task_info: _Optional[_Iterable[_Union[TaskInfo, _Mapping]]] = ..., iteration_finished: bool = ...) -> None: ...

class DisableCompressionAtRuntimeRequest(_message.Message):
    __slots__ = ("dataset_id", "disable_compression_at_runtime")
    DATASET_ID_FIELD_NUMBER: _ClassVar[int]
    DISABLE_COMPRESSION_AT_RUNTIME_FIELD_NUMBER: _ClassVar[int]
    dataset_id: str
    disable_compression_at_runtime: bool
    def __init__(self, dataset_id: _Optional[str] = ..., disable_compression_at_runtime: bool = ...) -> None: ...

class DisableCompressionAtRuntimeResponse(_message.Message):
    __slots__ = ("compression_disabled_at_runtime", "no_compression_to_disable")
    COMPRESSION_DISABLED_AT_RUNTIME_FIELD_NUMBER: _ClassVar[int]
    NO_COMPRESSION_TO_DISABLE_FIELD_NUMBER: _ClassVar[int]
    compression_disabled_at_runtime: bool
    no_compression_to_disable: bool
    def __init__(self, compression_disabled_at_runtime: bool = ..., no_compression_to_disable: bool = ...) -> None: ...

class TaskDef(_message.Message):
    __slots__ = ("task_id", "iteration_id")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ITERATION_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    iteration_id: int
    def __init__(self, task_id: _Optional[int] = ..., iteration_id: _Optional[int] = ...) -> None: ...

class WorkerHeartbeatRequest(_message.Message):
    __slots__ = ("worker_address", "current_tasks")
    WORKER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_TASKS_FIELD_NUMBER: _ClassVar[int]
    worker_address: str
    current_tasks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, worker_address: _Optional[str] = ..., current_tasks: _Optional[_Iterable[int]] = ...) -> None: ...

class WorkerHeartbeatResponse(_message.Message):
    __slots__ = ("new_tasks", "tasks_to_delete")
    NEW_TASKS_FIELD_NUMBER: _ClassVar[int]
    TASKS_TO_DELETE_FIELD_NUMBER: _ClassVar[int]
    new_tasks: _containers.RepeatedCompositeFieldContainer[TaskDef]
    tasks_to_delete: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, new_tasks: _Optional[_Iterable[_Union[TaskDef, _Mapping]]] = ..., tasks_to_delete: _Optional[_Iterable[int]] = ...) -> None: ...

class TaskProgress(_message.Message):
    __slots__ = ("task_id", "completed")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    completed: bool
    def __init__(self, task_id: _Optional[int] = ..., completed: bool = ...) -> None: ...

class WorkerUpdateRequest(_message.Message):
    __slots__ = ("worker_address", "updates")
    WORKER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    worker_address: str
    updates: _containers.RepeatedCompositeFieldContainer[TaskProgress]
    def __init__(self, worker_address: _Optional[str] = ..., updates: _Optional[_Iterable[_Union[TaskProgress, _Mapping]]] = ...) -> None: ...

class GetSplitRequest(_message.Message):
    __slots__ = ("iteration_id", "repetition", "split_provider_index")
    ITERATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPETITION_FIELD_NUMBER: _ClassVar[int]
    SPLIT_PROVIDER_INDEX_FIELD_NUMBER: _ClassVar[int]
    iteration_id: int
    repetition: int
    split_provider_index: int
    def __init__(self, iteration_id: _Optional[int] = ..., repetition: _Optional[int] = ..., split_provider_index: _Optional[int] = ...) -> None: ...

class GetSplitResponse(_message.Message):
    __slots__ = ("split", "end_of_splits")
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    END_OF_SPLITS_FIELD_NUMBER: _ClassVar[int]
    split: bytes
    end_of_splits: bool
    def __init__(self, split: _Optional[bytes] = ..., end_of_splits: bool = ...) -> None: ...

class GetElementRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    def __init__(self, task_id: _Optional[int] = ...) -> None: ...

class StringTensor(_message.Message):
    __slots__ = ("dtype", "tensor_shape", "string_val")
    class Shape(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    TENSOR_SHAPE_FIELD_NUMBER: _ClassVar[int]
    STRING_VAL_FIELD_NUMBER: _ClassVar[int]
    dtype: int
    tensor_shape: StringTensor.Shape
    string_val: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, dtype: _Optional[int] = ..., tensor_shape: _Optional[_Union[StringTensor.Shape, _Mapping]] = ..., string_val: _Optional[_Iterable[bytes]] = ...) -> None: ...

class UncompressedElement(_message.Message):
    __slots__ = ("components",)
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    components: _containers.RepeatedCompositeFieldContainer[StringTensor]
    def __init__(self, components: _Optional[_Iterable[_Union[StringTensor, _Mapping]]] = ...) -> None: ...

class GetElementResponse(_message.Message):
    __slots__ = ("end_of_sequence", "uncompressed", "element_index")
    END_OF_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    UNCOMPRESSED_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_INDEX_FIELD_NUMBER: _ClassVar[int]
    end_of_sequence: bool
    uncompressed: UncompressedElement
    element_index: int
    def __init__(self, end_of_sequence: bool = ..., uncompressed: _Optional[_Union[UncompressedElement, _Mapping]] = ..., element_index: _Optional[int] = ...) -> None: ...
