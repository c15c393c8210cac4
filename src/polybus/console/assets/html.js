// Preact with templates instead of a build step. Values in a template become text or properties, never markup.
import { h } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export { cloneElement, render, toChildArray } from "./vendor/preact.js";
export { useState, useEffect, useMemo, useRef, useCallback, useId, useLayoutEffect } from "./vendor/hooks.js";
