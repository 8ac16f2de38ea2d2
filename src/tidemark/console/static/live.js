// What is asked again and again while somebody looks: not while the page is hidden, and never so
// often that the server would spend more than a tenth of its time on it.
import { Failure } from "/console/api.js";
import { useEffect, useRef, useState } from "/console/vendor/preact.js";

const EVERY = 2000;
const SHARE = 10;
const PATIENCE = 10_000; // Milliseconds without an answer that are worth a word.

// `look` is asked anew whenever one of `on` changes; what was known of something else is forgotten.
export function useLive(look, on = []) {
  const [known, setKnown] = useState({ data: null, error: null, on });
  const again = useRef(() => {});
  useEffect(() => {
    let timer = null;
    let looks = 0; // Of several under way, the last one counts.
    const failed = (error) => setKnown((before) => ({ data: same(before.on, on) ? before.data : null, on, error }));
    async function once() {
      clearTimeout(timer);
      timer = null;
      const number = (looks += 1);
      const began = performance.now();
      const slow = setTimeout(() => number === looks && failed(silent()), PATIENCE);
      let found;
      try {
        found = { data: await look(), error: null, on };
      } catch (error) {
        found = { error };
      }
      clearTimeout(slow);
      if (number !== looks) return;
      if (found.error) failed(found.error);
      else setKnown(found);
      if (!document.hidden) timer = setTimeout(once, Math.max(EVERY, SHARE * (performance.now() - began)));
    }
    const seen = () => !document.hidden && timer === null && once();
    again.current = once;
    once();
    document.addEventListener("visibilitychange", seen);
    return () => {
      looks = -1;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, on);
  const current = same(known.on, on) ? known : { data: null, error: null };
  return { data: current.data, error: current.error, again: () => again.current() };
}

const silent = () => new Failure({ message: `The server has not answered for ${PATIENCE / 1000} seconds. Still waiting.`, code: "08006" }, 0);

const same = (a, b) => a.length === b.length && a.every((each, at) => each === b[at]);
