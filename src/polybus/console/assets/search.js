// What is looked for among messages, as a condition in the language of rules; the bus does the looking.

const quoted = (text) => `'${text.replace(/'/g, "''")}'`;

/** A property's comparison: a number is compared as a number, too, for its type is not seen in a form. */
function property(name, value) {
  const field = `user.[${name}]`;
  if (!value) return `EXISTS(${field})`;
  if (value.includes("%")) return `${field} LIKE ${quoted(value)}`;
  if (/^(true|false)$/i.test(value)) return `(${field} = ${value.toUpperCase()} OR ${field} = ${quoted(value)})`;
  return /^-?\d+(\.\d+)?$/.test(value) ? `(${field} = ${value} OR ${field} = ${quoted(value)})` : `${field} = ${quoted(value)}`;
}

const text = (field, value) => (value.includes("%") ? `sys.${field} LIKE ${quoted(value)}` : `sys.${field} = ${quoted(value)}`);

export const NOTHING = { id: "", session: "", subject: "", name: "", value: "", from: "", before: "", condition: "", partition: "" };

/** The words by which the bus chooses messages: `filter`, `from`, `before`, `partition`. */
export function choiceOf(wanted) {
  const found = [
    wanted.id.trim() && text("MessageId", wanted.id.trim()),
    wanted.session.trim() && text("SessionId", wanted.session.trim()),
    wanted.subject.trim() && text("Label", wanted.subject.trim()),
    wanted.name.trim() && property(wanted.name.trim(), wanted.value.trim()),
    wanted.condition.trim() && `(${wanted.condition.trim()})`,
  ].filter(Boolean);
  const choice = {};
  if (found.length) choice.filter = found.join(" AND ");
  if (wanted.from) choice.from = new Date(wanted.from).toISOString();
  if (wanted.before) choice.before = new Date(wanted.before).toISOString();
  if (wanted.partition !== "") choice.partition = Number(wanted.partition);
  return choice;
}

/** A choice of single messages, so many at a time as a condition may have characters. */
export function byNumber(numbers, most = 40) {
  const choices = [];
  for (let at = 0; at < numbers.length; at += most) {
    choices.push({ filter: `sys.SequenceNumber IN (${numbers.slice(at, at + most).join(", ")})` });
  }
  return choices;
}
