/*
 * board - the page: what is looked at, when it is fetched, where it is shown.
 *
 * One run is looked at (the first screen, ranks, events, texts); any number are drawn over
 * each other. The list of runs arrives by itself; curves are fetched again when a drawn
 * run has got further, at most every two seconds and never for more than a twentieth of
 * the time, only for charts on the screen, and not at all while the page is hidden.
 */

const CHARTS = [
    {key: "loss", title: "Loss", format: formatValue, hasKeys: true},
    {key: "eval_loss", title: "Evaluation loss", format: formatValue, hint: "No evaluation yet.", isExact: true},
    {key: "lr", title: "Learning rate", format: formatValue, isExact: true},
    {key: "grad_norm", title: "Gradient norm", format: formatValue, isLog: true},
    {key: "ips_total", title: "Tokens per second", format: (x) => formatLarge(x), tick: (x) => formatLarge(x)},
    {key: "mfu", title: "MFU", format: formatShare, tick: (x) => trimNumber(100 * x, 3) + "\u00a0%"},
    {key: "loss_scale", title: "Loss scale", format: (x) => formatCount(x), isLog: true, hint: "Only runs in float16 have one.", isRare: true, isExact: true},
    {key: "shares", title: "Where a step's time goes", format: formatShare, isShares: true},
];

const REFRESH_SECONDS = 2;
const N_POINTS = 600; // a chart is at most about that many pixels wide

class Board {
    constructor(source) {
        this.source = source;
        this.runs = [];
        this.focus = null; // the number of the run that is looked at
        this.drawn = []; // numbers of runs, in the order of their colours
        this.offsets = new Map(); // run -> Unix time of its first logged step
        this.markers = new Map(); // run -> eventMarkers()
        this.fetched = new Map(); // what has been fetched, by its name -> the key it was fetched for
        this.view = {
            x: "step", logX: false, smoothing: 0, range: "all", zoom: null, pointer: null, pointerChart: null,
            zoomTo: (zoom) => this.zoomTo(zoom), shown: () => this.shown(), point: (chart, x) => this.point(chart, x),
        };
        this.summary = new Summary(byId("summary"), source);
        this.list = new RunList(byId("runs"), this);
        this.ranks = new RankMap(byId("ranks"));
        this.pipeline = new PipelineView(byId("pipeline"));
        this.samples = new Samples(byId("samples"));
        this.makeBar();
        this.makeCharts();
    }

    /* -- construction ---------------------------------------------------------------------- */

    makeBar() {
        const slider = el("input", {type: "range", min: 0, max: 0.99, step: 0.01, value: "0", "aria-label": "Smoothing"});
        slider.addEventListener("input", () => {
            this.view.smoothing = Number(slider.value);
            this.redraw();
        });
        this.reset = el("button", {type: "button", class: "button", hidden: true, onclick: () => this.zoomTo(null)}, "Reset zoom");
        byId("curve-bar").append(
            segmented("Horizontal axis", Object.entries(X_AXES).map(([value, a]) => [value, a.text]), this.view.x, (x) => {
                this.view.x = x;
                this.zoomTo(null);
            }),
            segmented("Range", [["all", "All"], ["half", "Last half"], ["tenth", "Last tenth"]], "all", (range) => {
                this.view.range = range;
                this.zoomTo(null);
            }),
            tick("log", false, (on) => {
                this.view.logX = on;
                this.redraw();
            }),
            el("label", {class: "tick"}, "Smoothing", slider), el("span", {class: "grow"}), this.reset);
    }

    makeCharts() {
        this.charts = CHARTS.map((kind) => (kind.isShares ? new ShareChart(kind, this.view) : new Chart(kind, this.view)));
        const seen = new IntersectionObserver((entries) => {
            let isNew = false;
            for (const entry of entries) {
                const chart = this.charts.find((c) => c.box === entry.target);
                isNew = isNew || (entry.isIntersecting && !chart.isSeen);
                chart.isSeen = entry.isIntersecting;
            }
            if (isNew && this.focus !== null) this.fetchCurves(); // what comes into sight does not wait
        }, {rootMargin: "200px"});
        for (const chart of this.charts) {
            chart.wanted = 0; // counts fetches, so that an answer that comes late is dropped
            if (chart.kind.isRare) chart.box.hidden = true;
            byId("curve-grid").append(chart.box);
            seen.observe(chart.box);
        }
    }

    /* -- the list of runs ------------------------------------------------------------------- */

    setRuns(runs) {
        this.runs = runs;
        const focus = this.runOf(this.focus);
        const isBetter = !this.isChosen && !this.source.isSaved && focus && !isAlive(focus) && runs.some(isAlive);
        if (!focus || isBetter) this.chooseFirst();
        if (this.focus === null) {
            byId("summary").hidden = true;
            return;
        }
        this.show();
    }

    runOf(number) {
        return this.runs.find((run) => run.run === number);
    }

    /* Until the reader chooses, the run that is alive, or else wrote last, is looked at, and
     * alone is drawn; saved pages draw what was chosen when they were saved. */
    chooseFirst() {
        if (this.runs.length === 0) return;
        const best = this.runs.slice().sort((a, b) => Number(isAlive(b)) - Number(isAlive(a)) || (b.last_time || 0) - (a.last_time || 0))[0];
        this.focus = best.run;
        this.drawn = this.source.isSaved ? this.runs.map((run) => run.run) : [best.run];
    }

    lookAt(number) {
        this.isChosen = true;
        if (this.drawn.length === 1 && this.drawn[0] === this.focus) this.drawn = [number];
        this.focus = number;
        if (!this.isDrawn(number)) this.drawn.push(number);
        this.show();
        this.refresh(true);
    }

    drawRun(number, isOn) {
        this.isChosen = true;
        this.drawn = this.drawn.filter((n) => n !== number);
        if (isOn) this.drawn.push(number);
        this.show();
        this.refresh(true);
    }

    isDrawn(number) {
        return this.drawn.includes(number);
    }

    slotOf(number) {
        return this.drawn.indexOf(number);
    }

    show() {
        const run = this.runOf(this.focus);
        byId("summary").hidden = false;
        byId("curves").hidden = false;
        this.list.set(this.runs);
        this.summary.set(run);
        this.showTitle(run);
        if (!this.source.isSaved) {
            const chosen = this.isDrawn(this.focus) ? this.drawn : [this.focus, ...this.drawn];
            byId("save").href = this.source.saveAddress(chosen);
            byId("save").download = "trefoil-" + String(run.name).replace(/[^A-Za-z0-9._-]+/g, "_").slice(0, 60) + ".html";
        }
        this.refresh(false);
    }

    showTitle(run) {
        const [glyph] = STATES[run.state] || ["?"];
        document.title = glyph + " " + formatCount(run.step) + (isNumber(run.loss) ? " · loss " + trimNumber(run.loss, 4) : "") + " · " + run.name;
    }

    /* -- fetching ----------------------------------------------------------------------------- */

    /* Fetch what has changed. isNow: the reader asked for it, so do not wait. */
    refresh(isNow) {
        if (document.hidden && !this.source.isSaved) return;
        if (isNow) this.generation = (this.generation || 0) + 1;
        else if (this.timer || this.isBusy) {
            this.isAsked = true;
            return;
        }
        this.fetchAll();
    }

    async fetchAll() {
        const began = performance.now();
        this.isBusy = true;
        this.isAsked = false;
        await Promise.allSettled([this.fetchCurves(), this.fetchPanels(), this.fetchDiff()]);
        this.isBusy = false;
        if (this.timer) return;
        const cost = performance.now() - began;
        this.timer = setTimeout(() => {
            this.timer = null;
            if (this.isAsked) this.refresh(false);
        }, Math.max(1000 * REFRESH_SECONDS, 20 * cost));
    }

    /* True once for every key: a thing is fetched again only when what it depends on changed. */
    isStale(name, key) {
        if (this.fetched.get(name) === key) return false;
        this.fetched.set(name, key);
        return true;
    }

    progressOf(number) {
        const run = this.runOf(number) || {};
        return number + "/" + run.step + "/" + run.read_bytes + "/" + run.eval_loss;
    }

    fetchCurves() {
        const key = this.drawn.map((n) => this.progressOf(n)).join(" ") + " of " + this.focus + "/" + this.progressOf(this.focus) +
            "/" + this.generation + "/" + this.view.x;
        return Promise.allSettled(this.charts.map((chart) => {
            const isNeeded = chart.isSeen || chart.kind.isRare || chart.kind.isShares;
            const name = "chart " + chart.kind.key;
            if (!isNeeded || !this.isStale(name, key)) return null;
            const done = chart.kind.isShares ? this.fetchShares(chart) : this.fetchChart(chart);
            return done.catch(() => this.fetched.delete(name)); // what is drawn stays until the board answers
        }));
    }

    async fetchChart(chart) {
        const wanted = ++chart.wanted;
        const curves = await Promise.all(this.drawn.map(async (run) => {
            const facts = this.runOf(run);
            const series = await this.series(run, chart.kind.key);
            return {run, name: facts ? facts.name : "run " + run, slot: this.slotOf(run), series};
        }));
        if (wanted !== chart.wanted) return;
        if (chart.kind.isRare) {
            chart.box.hidden = !curves.some((c) => c.series.max.some((v) => v !== 1)); // 1: nothing is scaled
            byId("curve-grid").classList.toggle("odd", !chart.box.hidden);
        }
        chart.set(curves, this.markersOf(this.focus));
    }

    async fetchShares(chart) {
        const wanted = ++chart.wanted;
        const run = this.focus;
        const parts = await Promise.all(SHARES.map(([key]) => this.series(run, key)));
        if (wanted !== chart.wanted) return;
        chart.set(parts.every((s) => s.x.length > 0) ? parts.map((series, k) => ({run, name: SHARES[k][1], slot: k, series})) : [], []);
        if (!this.view.zoom) this.summary.setShares(parts.map((s) => s.mean[s.mean.length - 1]));
    }

    /* A curve in what the view shows. Times are counted from the run's first logged step. */
    async series(run, y) {
        const x = this.view.x;
        const offset = x === "time" ? await this.offsetOf(run) : 0;
        const zoom = this.shown();
        const s = await this.source.series({
            run, y, x, n: N_POINTS, from: zoom ? zoom[0] + offset : null, to: zoom ? zoom[1] + offset : null,
        });
        if (s.x.length !== s.mean.length) throw new Error("a series of unequal columns");
        return offset ? {...s, x: s.x.map((v) => v - offset)} : s;
    }

    async offsetOf(run) {
        if (!this.offsets.has(run)) {
            const s = await this.source.series({run, y: "loss", x: "time", n: N_POINTS, from: null, to: null});
            if (s.x.length === 0) return 0;
            this.offsets.set(run, s.x[0]);
        }
        return this.offsets.get(run);
    }

    /* How far the furthest of the drawn runs has got on the x axis, or null. */
    end() {
        const ends = this.drawn.map((n) => {
            const run = this.runOf(n) || {};
            const start = run.start || {};
            return {step: run.step, tokens: run.tokens, time: run.last_time - this.offsets.get(n), flops: run.step * start.flops_per_step}[this.view.x];
        }).filter(isNumber);
        return ends.length ? Math.max(...ends) : null;
    }

    /* What is shown of the x axis, [from, to], or null: all of it. */
    shown() {
        const end = this.end();
        if (this.view.zoom || this.view.range === "all" || end === null) return this.view.zoom;
        return [end * (this.view.range === "half" ? 0.5 : 0.9), end];
    }

    markersOf(run) {
        const facts = this.runOf(run) || {};
        const start = facts.start || {};
        const offset = this.offsets.get(run);
        const place = {
            step: (m) => m.step, time: (m) => (isNumber(offset) ? m.time - offset : NaN),
            tokens: (m) => m.step * start.tokens_per_step, flops: (m) => m.step * start.flops_per_step,
        }[this.view.x];
        return (this.markers.get(run) || []).map((m) => ({x: place(m), kind: m.kind, text: m.text})).filter((m) => isNumber(m.x));
    }

    async fetchPanels() {
        const number = this.focus;
        const run = this.runOf(number) || {};
        if (!this.isStale("panels", number + "/" + this.progressOf(number) + "/" + run.state)) return;
        const get = (what, none) => this.source.get(what, number).catch(() => none);
        const [events, ranks, samples] = await Promise.all([get("events", []), get("ranks", null), get("samples", [])]);
        const evaluations = await this.evaluationsOf(number).catch(() => []);
        if (number !== this.focus) return;
        this.markers.set(number, eventMarkers(events));
        showEvents(byId("events"), events, evaluations);
        this.ranks.set(ranks);
        this.samples.set(samples);
        await this.fetchFixed(number, run);
    }

    /* What changes only when the run starts again, or has traced another step. */
    async fetchFixed(number, run) {
        const start = run.start || {};
        const key = [number, start.pid, start.restarts, run.state, themeNow()].join("/");
        if (!this.isStale("fixed", key)) return;
        const get = (what, none) => this.source.get(what, number).catch(() => none);
        const [config, schedule] = await Promise.all([get("config", {lines: []}), get("schedule", null)]);
        if (number !== this.focus) return;
        if (this.isStale("config", JSON.stringify(config))) showConfig(byId("config"), config.lines);
        this.pipeline.set(schedule);
    }

    /* Evaluations are points of a curve; among the events they are told as events. */
    async evaluationsOf(run) {
        const [steps, times] = await Promise.all(["step", "time"].map((x) =>
            this.source.series({run, y: "eval_loss", x, n: N_POINTS, from: null, to: null})));
        if (steps.x.length !== times.x.length || steps.count > N_POINTS) return [];
        return steps.x.map((step, i) => ({event: "evaluation", step, time: times.x[i], eval_loss: steps.mean[i]}));
    }

    async fetchDiff() {
        const runs = this.drawn.map((n) => this.runOf(n)).filter(Boolean).sort((a, b) => a.run - b.run); // as the board gives values
        if (!this.isStale("diff", runs.map((r) => r.run).join(",") + themeNow())) return;
        const rows = runs.length > 1 ? await this.source.diff(runs.map((r) => r.run)).catch(() => []) : [];
        showDiff(byId("diff"), runs.map((r) => ({name: r.name, slot: this.slotOf(r.run)})), rows);
    }

    /* -- what the charts tell -------------------------------------------------------------------- */

    zoomTo(zoom) {
        this.view.zoom = zoom;
        this.reset.hidden = zoom === null;
        this.refresh(true);
    }

    point(chart, x) {
        this.view.pointer = x;
        this.view.pointerChart = chart;
        this.redraw();
    }

    redraw() {
        if (this.frame) return;
        this.frame = requestAnimationFrame(() => {
            this.frame = null;
            for (const chart of this.charts) if (!chart.box.hidden) chart.draw();
        });
    }

    redrawAll() {
        this.redraw();
        this.ranks.draw();
        this.pipeline.draw();
        this.list.set(this.runs);
        this.fetched.clear();
        this.refresh(true);
    }
}

const isAlive = (run) => ["training", "evaluating", "saving", "starting"].includes(run.state);

/* -- theme ------------------------------------------------------------------------------------ */

/* Auto, light or dark; kept where the browser lets a page keep something. */
function setUpTheme(changed) {
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    const read = () => {
        try {
            return localStorage.getItem("trefoil-theme") || "auto";
        } catch {
            return "auto";
        }
    };
    let theme = read();
    const apply = () => {
        const shade = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
        document.documentElement.dataset.shade = shade;
        byId("theme").textContent = {auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark"}[theme];
        byId("theme").setAttribute("aria-label", "Theme: " + theme + ". Change it");
    };
    byId("theme").addEventListener("click", () => {
        theme = {auto: dark.matches ? "light" : "dark", light: dark.matches ? "dark" : "auto", dark: dark.matches ? "auto" : "light"}[theme];
        try {
            localStorage.setItem("trefoil-theme", theme);
        } catch {
            // a page that may keep nothing still changes its theme
        }
        apply();
        changed();
    });
    dark.addEventListener("change", () => {
        apply();
        changed();
    });
    apply();
}

/* -- start -------------------------------------------------------------------------------------- */

function showLink(state) {
    const texts = {live: ["● live", "good"], lost: ["✖ the board does not answer; what is shown is old", "bad"], wait: ["○ connecting", "mark"]};
    const [text, tone] = texts[state];
    byId("link").textContent = text;
    byId("link").className = "link " + tone;
}

async function start() {
    const source = openSource();
    let board = null;
    setUpTheme(() => board && board.redrawAll());
    board = new Board(source);
    if (source.isSaved) {
        byId("link").textContent = "saved " + formatTime(source.savedAt);
        byId("foot").textContent = "A page saved by trefoil board, with its data inside; it needs no network.";
    } else {
        byId("save").hidden = false;
        byId("foot").textContent = "Drag over a curve to zoom, double-click to see all of it. With the keyboard: arrows read a focused chart, + and − zoom, 0 resets.";
        showLink("wait");
        source.onlink = showLink;
        source.watch((runs) => board.setRuns(runs));
    }
    new ResizeObserver(() => requestAnimationFrame(() => {
        board.redraw();
        board.ranks.draw();
        board.pipeline.draw();
    })).observe(document.querySelector("main"));
    document.addEventListener("visibilitychange", () => board.refresh(false));
    setInterval(() => board.summary.tick(), 1000);
    try {
        board.setRuns(await source.runs());
    } catch {
        if (!source.isSaved) showLink("lost");
    }
}

start();
