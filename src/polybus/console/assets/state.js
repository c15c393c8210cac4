// What the whole page shares: who is logged in, what was last told, and notes to the user.
import { useState, useEffect } from "./html.js";

/** A value that components follow. */
export class Value {
  constructor(value) {
    this.value = value;
    this.followers = new Set();
  }

  set(value) {
    this.value = value;
    for (const follower of [...this.followers]) follower(value);
  }
}

export function useValue(source) {
  const [, again] = useState(0);
  useEffect(() => {
    const follower = () => again((n) => n + 1);
    source.followers.add(follower);
    follower();
    return () => source.followers.delete(follower);
  }, [source]);
  return source.value;
}

export const session = new Value(null);
export const notes = new Value([]);

let numbered = 0;

/** Tells the user something for a while; errors stay until they are closed. */
export function note(text, kind = "done") {
  numbered += 1;
  const number = numbered;
  notes.set([...notes.value.slice(-3), { number, text, kind }]);
  if (kind !== "error") setTimeout(() => dismiss(number), 6000);
}

export function dismiss(number) {
  notes.set(notes.value.filter((each) => each.number !== number));
}

export const may = (right) => session.value?.rights.includes(right) ?? false;
