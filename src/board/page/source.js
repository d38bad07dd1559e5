/*
 * source - where the page's data come from: a board that serves runs, or the page itself.
 *
 * Both sources have the same calls. get(what, run) and series() give promises of the JSON
 * that the board's /api gives; watch(tell) calls tell(runs) whenever the list of runs has
 * changed. A live source also says whether the board can be reached, by onlink(state).
 */

/* A board behind HTTP. */
class LiveSource {
    constructor() {
        this.isSaved = false;
        this.clockSkew = 0; // the board's clock minus this machine's, seconds
        this.onlink = () => {};
    }

    async fetch(path) {
        const answer = await fetch(path, {cache: "no-store", credentials: "same-origin"});
        const date = Date.parse(answer.headers.get("date") || "");
        if (Number.isFinite(date)) {
            const skew = (date - Date.now()) / 1000;
            this.clockSkew = Math.abs(skew) < 2 ? 0 : skew; // the header has whole seconds
        }
        const data = await answer.json();
        if (!answer.ok) throw new Error(data.error || "HTTP " + answer.status);
        return data;
    }

    runs() {
        return this.fetch("api/runs");
    }

    get(what, run) {
        return this.fetch("api/" + what + "?run=" + run);
    }

    diff(runs) {
        return this.fetch("api/diff?runs=" + runs.join(","));
    }

    /* q: {run, y, x, from, to, n}; from and to may be null. */
    series(q) {
        let path = "api/series?run=" + q.run + "&y=" + q.y + "&x=" + q.x + "&n=" + q.n;
        if (q.from !== null) path += "&from=" + q.from;
        if (q.to !== null) path += "&to=" + q.to;
        return this.fetch(path);
    }

    watch(tell) {
        const stream = new EventSource("api/stream");
        stream.addEventListener("open", () => this.onlink("live"));
        stream.addEventListener("error", () => this.onlink("lost")); // it tries again by itself
        stream.addEventListener("message", (message) => {
            this.onlink("live");
            tell(JSON.parse(message.data).runs);
        });
    }

    saveAddress(runs) {
        return "save?runs=" + runs.join(",");
    }
}

/* A saved page: the data stand in the element with the id "saved". */
class SavedSource {
    constructor(data) {
        this.isSaved = true;
        this.clockSkew = 0;
        this.data = data;
        this.savedAt = data.saved_at;
        this.onlink = () => {};
    }

    async runs() {
        return this.data.runs || [];
    }

    async get(what, run) {
        const found = (this.data[what] || {})[run];
        if (found === undefined || found === null) throw new Error("not saved");
        return found;
    }

    async diff(runs) {
        const numbers = (this.data.runs || []).map((r) => r.run);
        const columns = runs.map((run) => numbers.indexOf(run));
        return (this.data.diff || [])
            .map((row) => ({key: row.key, values: columns.map((c) => row.values[c])}))
            .filter((row) => row.values.some((value) => value !== row.values[0]));
    }

    async series(q) {
        const byAxis = ((this.data.series || {})[q.run] || {})[q.y] || {};
        const all = byAxis[q.x] || {x: [], min: [], max: [], mean: [], count: 0};
        if (q.from === null && q.to === null) return all;
        const from = q.from === null ? -Infinity : q.from;
        const to = q.to === null ? Infinity : q.to;
        // One point beyond each end, so that the line reaches the edges.
        let first = all.x.findIndex((x) => x >= from);
        if (first < 0) first = all.x.length;
        let last = first;
        while (last < all.x.length && all.x[last] <= to) last++;
        const cut = (list) => list.slice(Math.max(0, first - 1), last + 1);
        return {x: cut(all.x), min: cut(all.min), max: cut(all.max), mean: cut(all.mean), count: all.count};
    }

    watch() {}
}

function openSource() {
    const saved = byId("saved");
    return saved ? new SavedSource(JSON.parse(saved.textContent)) : new LiveSource();
}
