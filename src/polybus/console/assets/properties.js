// Which properties an entity has, how each is shown and edited, and which of them are chosen for good at creation.
import { UNLIMITED } from "./format.js";

const QT = ["queue", "topic"];
const QS = ["queue", "subscription"];
const ALL = ["queue", "topic", "subscription"];

/** name, label, shape, kinds of entities, value of a new one, hint; `fixed`: never changed after creation. */
export const PROPERTIES = [
  { name: "MaxSizeInMegabytes", label: "Maximum size", shape: "size", of: QT, start: "1024", group: "Size" },
  { name: "EnablePartitioning", label: "Enable partitioning", shape: "boolean", of: QT, start: "true", fixed: true, group: "Size" },
  { name: "MaxMessageSizeInKilobytes", label: "Largest message (KB)", shape: "number", of: QT, start: "", group: "Size", hint: "Empty: what the tier allows." },
  { name: "DefaultMessageTimeToLive", label: "Message time to live", shape: "duration", of: ALL, start: UNLIMITED, group: "Lifetime" },
  { name: "DeadLetteringOnMessageExpiration", label: "Dead-letter what expires", shape: "boolean", of: QS, start: "false", group: "Lifetime" },
  { name: "AutoDeleteOnIdle", label: "Delete the entity when idle", shape: "duration", of: ALL, start: UNLIMITED, group: "Lifetime" },
  { name: "LockDuration", label: "Lock duration", shape: "duration", of: QS, start: "PT1M", limited: true, group: "Receiving", hint: "Up to 5 minutes." },
  { name: "MaxDeliveryCount", label: "Maximum delivery count", shape: "number", of: QS, start: "10", group: "Receiving", hint: "Then a message is dead-lettered." },
  { name: "RequiresSession", label: "Require sessions", shape: "boolean", of: QS, start: "false", fixed: true, group: "Receiving", hint: "Messages of one session stay in order and go to one receiver." },
  { name: "DeadLetteringOnFilterEvaluationExceptions", label: "Dead-letter when a filter fails", shape: "boolean", of: ["subscription"], start: "true", group: "Receiving" },
  { name: "RequiresDuplicateDetection", label: "Detect duplicates", shape: "boolean", of: QT, start: "false", fixed: true, group: "Sending", hint: "A message whose id was seen before is dropped." },
  { name: "DuplicateDetectionHistoryTimeWindow", label: "Duplicate detection window", shape: "duration", of: QT, start: "PT10M", limited: true, group: "Sending" },
  { name: "ForwardTo", label: "Forward messages to", shape: "text", of: QS, start: "", group: "Sending", hint: "A queue or a topic." },
  { name: "ForwardDeadLetteredMessagesTo", label: "Forward dead letters to", shape: "text", of: QS, start: "", group: "Sending" },
  { name: "Status", label: "Status", shape: "status", of: ALL, start: "Active", group: "More" },
  { name: "UserMetadata", label: "Metadata", shape: "text", of: ALL, start: "", group: "More", hint: "A note of your own." },
  { name: "EnableBatchedOperations", label: "Batched operations", shape: "boolean", of: ALL, start: "true", group: "More" },
  { name: "EnableExpress", label: "Express", shape: "boolean", of: QT, start: "false", group: "More", hint: "Kept for tools that set it; every entity is durable." },
  { name: "SupportOrdering", label: "Support ordering", shape: "boolean", of: ["topic"], start: "", group: "More" },
  { name: "FilteringMessagesBeforePublishing", label: "Filter before publishing", shape: "boolean", of: ["topic"], start: "false", group: "More" },
  { name: "EnableSubscriptionPartitioning", label: "Subscription partitioning", shape: "boolean", of: ["topic"], start: "false", group: "More" },
  { name: "IsAnonymousAccessible", label: "Anonymous access", shape: "boolean", of: QT, start: "false", group: "More" },
];

export const GROUPS = ["Size", "Lifetime", "Receiving", "Sending", "More"];
export const STATUSES = ["Active", "Disabled", "SendDisabled", "ReceiveDisabled"];

export const propertiesOf = (kind) => PROPERTIES.filter((each) => each.of.includes(kind));

/** What the form of a new entity begins with: partitioning is ticked, as in the portal. */
export const startOf = (kind) => Object.fromEntries(propertiesOf(kind).map((each) => [each.name, each.start]));
