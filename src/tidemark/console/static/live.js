// What is asked again and again while somebody looks: not while the page is hidden, and never so
// often that the server would spend more than a tenth of its time on it.
import { useEffect, useRef, useState } from "/console/vendor/preact.js";

const EVERY = 2000;
const SHARE = 10;

// `look` is asked anew whenever one of `on` changes; what was known of something else is forgotten.
export function useLive(look, on = []) {
  const [known, setKnown] = useState({ data: null, error: null, on });
  const again = useRef(() => {});
  useEffect(() => {
    let timer = null;
    let over = false;
    async function once() {
      clearTimeout(timer);
      timer = null;
      const began = performance.now();
      let found;
      try {
        found = { data: await look(), error: null, on };
      } catch (error) {
        found = { error };
      }
      if (over) return;
      setKnown((before) => (found.error ? { data: same(before.on, on) ? before.data : null, on, ...found } : found));
      if (!document.hidden) timer = setTimeout(once, Math.max(EVERY, SHARE * (performance.now() - began)));
    }
    const seen = () => !document.hidden && timer === null && once();
    again.current = once;
    once();
    document.addEventListener("visibilitychange", seen);
    return () => {
      over = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, on);
  const current = same(known.on, on) ? known : { data: null, error: null };
  return { data: current.data, error: current.error, again: () => again.current() };
}

const same = (a, b) => a.length === b.length && a.every((each, at) => each === b[at]);
