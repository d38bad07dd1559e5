/*
 * chart - one quantity of one or several runs over step, tokens, time or FLOPs.
 *
 * What all charts share is the `view`: the x axis, the zoom, the smoothing and the place
 * the pointer is at; a chart tells the view of a zoom or a pointer, and the page redraws
 * all of them. A curve is the means of the points that fall into each column of pixels,
 * in a band from their minimum to their maximum; a value that is not a number is a gap.
 *
 * The keys of a focused chart: arrows move the read-out, + and - zoom, 0 or Escape resets.
 */

const PLOT = {left: 54, right: 12, top: 10, bottom: 26};

class Chart {
    /* kind: {key, title, format, tick, hint, isLog, isExact, hasKeys}; what is exact is not
     * smoothed, and a chart with keys names its curves when there are several. */
    constructor(kind, view) {
        this.kind = kind;
        this.view = view;
        this.isLog = Boolean(kind.isLog);
        this.curves = []; // {run, name, slot, series}
        this.markers = []; // {x, kind, text}
        this.drag = null; // the pixel a drag began at
        this.makeBox();
    }

    makeBox() {
        this.now = el("span", {class: "now"});
        this.canvas = el("canvas", {tabindex: "0", role: "img"});
        this.tip = el("div", {class: "tip", hidden: true});
        this.empty = el("p", {class: "empty"}, this.kind.hint || "No values yet.");
        this.plot = el("div", {class: "plot"}, this.canvas, this.tip, this.empty);
        const head = el("div", {class: "head"}, el("h3", {}, this.kind.title), this.now, el("span", {class: "grow"}));
        if (this.hasLog()) head.append(tick("log", this.isLog, (on) => {
            this.isLog = on;
            this.draw();
        }));
        this.box = el("article", {class: "card chart", "data-key": this.kind.key}, head, this.plot);
        this.canvas.addEventListener("pointermove", (event) => this.pointerMoved(event));
        this.canvas.addEventListener("pointerdown", (event) => this.pointerDown(event));
        this.canvas.addEventListener("pointerup", (event) => this.pointerUp(event));
        this.canvas.addEventListener("pointerleave", () => this.pointerLeft());
        this.canvas.addEventListener("pointercancel", () => this.pointerLeft());
        this.canvas.addEventListener("dblclick", () => this.view.zoomTo(null));
        this.canvas.addEventListener("keydown", (event) => this.keyPressed(event));
        this.canvas.addEventListener("blur", () => this.pointerLeft());
    }

    hasLog() {
        return true;
    }

    set(curves, markers) {
        this.curves = curves;
        this.markers = markers;
        this.empty.hidden = this.hasPoints();
        this.canvas.setAttribute("aria-label", this.describe());
        this.draw();
    }

    hasPoints() {
        return this.curves.some((curve) => curve.series.x.length > 0);
    }

    /* What the chart says to those who do not see it. */
    describe() {
        const parts = this.curves.filter((c) => c.series.x.length > 0).map((c) => {
            const s = c.series;
            const last = s.x.length - 1;
            return c.name + ": " + this.kind.format(s.mean[0]) + " at the left, " + this.kind.format(s.mean[last]) +
                " at " + X_AXES[this.view.x].format(s.x[last]);
        });
        return this.kind.title + " over " + X_AXES[this.view.x].long + ". " + parts.join("; ");
    }

    /* -- ranges --------------------------------------------------------------------------- */

    xRange() {
        const shown = this.view.shown();
        if (shown && shown[1] > shown[0]) return shown;
        let low = Infinity;
        let high = -Infinity;
        for (const {series} of this.curves)
            for (const x of series.x) {
                if (this.view.logX && x <= 0) continue;
                if (x < low) low = x;
                if (x > high) high = x;
            }
        if (low > high) return this.view.logX ? [1, 10] : [0, 1];
        if (!this.view.logX && this.view.range === "all" && low < 0.1 * high) low = 0;
        return low === high ? [low, low + 1] : [low, high];
    }

    /* The means decide, and of the bands all but the outermost twentieth: one spike does
     * not flatten a curve. What lies beyond is cut at the plot's edge. */
    yRange(xLow, xHigh) {
        const means = [];
        const lows = [];
        const highs = [];
        for (const {series} of this.curves)
            for (let i = 0; i < series.x.length; i++) {
                if (series.x[i] < xLow || series.x[i] > xHigh || !isNumber(series.mean[i])) continue;
                if (this.isLog && series.mean[i] <= 0) continue;
                means.push(series.mean[i]);
                if (!this.isLog || series.min[i] > 0) lows.push(series.min[i]);
                highs.push(series.max[i]);
            }
        if (means.length === 0) return this.isLog ? [1, 10] : [0, 1];
        const at = (list, share, other) => {
            const sorted = list.filter(isNumber).sort((a, b) => a - b);
            return sorted.length ? sorted[Math.round(share * (sorted.length - 1))] : other;
        };
        const low = Math.min(at(means, 0), at(lows, 0.05, Infinity));
        const high = Math.max(at(means, 1), at(highs, 0.95, -Infinity));
        if (this.isLog) {
            if (high / low < 1.02) return [low / 1.5, high * 1.5];
            const pad = Math.pow(high / low, 0.06);
            return [low / pad, high * pad];
        }
        if (high - low < 1e-9 * Math.abs(high) || high === low) {
            const pad = Math.abs(high) * 0.1 || 1;
            return [low - pad, high + pad];
        }
        const pad = 0.06 * (high - low);
        const floor = low >= 0 && low < 0.1 * high ? 0 : low - pad;
        return [floor, high + pad];
    }

    /* -- drawing -------------------------------------------------------------------------- */

    draw() {
        const width = this.plot.clientWidth;
        const height = this.plot.clientHeight;
        if (width < 40 || height < 40) return;
        const pen = fitCanvas(this.canvas, width, height);
        if (!this.hasPoints()) {
            this.tip.hidden = true;
            return;
        }
        const [xLow, xHigh] = this.xRange();
        const [yLow, yHigh] = this.yRange(xLow, xHigh);
        this.xAxis = new Axis(xLow, xHigh, PLOT.left, width - PLOT.right, this.view.logX && xLow > 0);
        this.yAxis = new Axis(yLow, yHigh, height - PLOT.bottom, PLOT.top, this.isLog);
        this.drawGrid(pen, width, height);
        pen.save();
        pen.beginPath();
        pen.rect(PLOT.left, PLOT.top - 2, width - PLOT.left - PLOT.right + 2, height - PLOT.top - PLOT.bottom + 4);
        pen.clip();
        this.drawMarkers(pen, height);
        this.drawCurves(pen);
        this.drawPointer(pen, height);
        pen.restore();
        this.drawDrag(pen, height);
        this.showNow();
        this.showTip(width);
    }

    drawGrid(pen, width, height) {
        pen.font = "11px system-ui, sans-serif";
        pen.lineWidth = 1;
        pen.strokeStyle = themeColour("grid");
        pen.fillStyle = themeColour("dim");
        pen.textAlign = "right";
        pen.textBaseline = "middle";
        for (const value of this.yAxis.ticks(Math.max(2, Math.floor(height / 42)))) {
            const y = Math.round(this.yAxis.place(value)) + 0.5;
            pen.beginPath();
            pen.moveTo(PLOT.left, y);
            pen.lineTo(width - PLOT.right, y);
            pen.stroke();
            pen.fillText(this.tickText(value), PLOT.left - 7, y);
        }
        pen.textBaseline = "top";
        const kind = X_AXES[this.view.x];
        const n = Math.max(2, Math.floor((width - PLOT.left) / 86));
        const ticks = this.view.x === "time" && !this.xAxis.isLog ? timeTicks(this.xAxis.low, this.xAxis.high, n) : this.xAxis.ticks(n);
        for (const value of ticks) {
            const x = this.xAxis.place(value);
            const text = value === 0 ? "0" : kind.short(value);
            const half = pen.measureText(text).width / 2;
            pen.textAlign = "center";
            pen.fillText(text, Math.min(Math.max(x, PLOT.left - 4 + half), width - 2 - half), height - PLOT.bottom + 9);
            pen.beginPath();
            pen.moveTo(Math.round(x) + 0.5, height - PLOT.bottom);
            pen.lineTo(Math.round(x) + 0.5, height - PLOT.bottom + 4);
            pen.stroke();
        }
    }

    tickText(value) {
        return this.kind.tick ? this.kind.tick(value) : formatValue(value, 4);
    }

    /* Restarts and failures are dashed lines through the plot, saves marks at its foot. */
    drawMarkers(pen, height) {
        for (const marker of this.markers) {
            const x = Math.round(this.xAxis.place(marker.x)) + 0.5;
            if (!isNumber(x)) continue;
            const isLine = marker.kind !== "save";
            pen.strokeStyle = themeColour(marker.kind === "failure" ? "bad" : "mark");
            pen.lineWidth = isLine ? 1 : 2;
            pen.setLineDash(isLine ? [3, 3] : []);
            pen.beginPath();
            pen.moveTo(x, isLine ? PLOT.top : height - PLOT.bottom - 5);
            pen.lineTo(x, height - PLOT.bottom);
            pen.stroke();
        }
        pen.setLineDash([]);
    }

    drawCurves(pen) {
        pen.lineJoin = "round";
        for (const curve of this.curves) {
            const {colour, dash} = curveStyle(curve.slot);
            const smooth = this.smoothing() > 0 ? smoothed(curve.series.mean, this.smoothing()) : null;
            this.drawBand(pen, curve.series, colour, smooth ? 0.1 : 0.2);
            pen.strokeStyle = colour;
            pen.setLineDash(dash);
            if (smooth) {
                pen.globalAlpha = 0.28;
                pen.lineWidth = 1;
                this.strokeLine(pen, curve.series.x, curve.series.mean);
                pen.globalAlpha = 1;
            }
            pen.lineWidth = 1.8;
            this.strokeLine(pen, curve.series.x, smooth || curve.series.mean);
            pen.setLineDash([]);
            if (curve.series.x.length <= 40) this.drawDots(pen, curve.series, colour);
        }
    }

    drawDots(pen, s, colour) {
        pen.fillStyle = colour;
        s.x.forEach((x, i) => {
            if (!this.canPlace(s.mean[i])) return;
            pen.beginPath();
            pen.arc(this.xAxis.place(x), this.yAxis.place(s.mean[i]), 2.6, 0, 7);
            pen.fill();
        });
    }

    canPlace(value) {
        return isNumber(value) && (!this.isLog || value > 0);
    }

    strokeLine(pen, xs, ys) {
        let isOpen = false;
        pen.beginPath();
        for (let i = 0; i < xs.length; i++) {
            if (!this.canPlace(ys[i])) {
                isOpen = false;
                continue;
            }
            const x = this.xAxis.place(xs[i]);
            const y = this.yAxis.place(ys[i]);
            if (isOpen) pen.lineTo(x, y);
            else {
                pen.moveTo(x, y);
                if (!this.canPlace(ys[i + 1])) pen.arc(x, y, 1, 0, 7); // alone between gaps
            }
            isOpen = true;
        }
        pen.stroke();
    }

    drawBand(pen, s, colour, alpha) {
        pen.fillStyle = colour;
        pen.globalAlpha = alpha;
        let first = 0;
        const close = (end) => {
            if (end - first >= 2) {
                pen.beginPath();
                for (let i = first; i < end; i++) pen.lineTo(this.xAxis.place(s.x[i]), this.yAxis.place(s.max[i]));
                for (let i = end - 1; i >= first; i--) pen.lineTo(this.xAxis.place(s.x[i]), this.yAxis.place(s.min[i]));
                pen.fill();
            }
            first = end + 1;
        };
        if (s.x.some((_, i) => s.min[i] !== s.max[i])) {
            for (let i = 0; i < s.x.length; i++)
                if (!this.canPlace(s.min[i]) || !this.canPlace(s.max[i])) close(i);
            close(s.x.length);
        }
        pen.globalAlpha = 1;
    }

    drawPointer(pen, height) {
        const at = this.view.pointer;
        if (at === null || at < this.xAxis.low || at > this.xAxis.high) return;
        const x = Math.round(this.xAxis.place(at)) + 0.5;
        pen.strokeStyle = themeColour("mark");
        pen.globalAlpha = 0.6;
        pen.lineWidth = 1;
        pen.beginPath();
        pen.moveTo(x, PLOT.top);
        pen.lineTo(x, height - PLOT.bottom);
        pen.stroke();
        pen.globalAlpha = 1;
        for (const curve of this.curves) {
            const i = this.indexAt(curve, at);
            if (i < 0) continue;
            const mean = this.valueAt(curve, i);
            if (!this.canPlace(mean)) continue;
            pen.fillStyle = curveStyle(curve.slot).colour;
            pen.strokeStyle = themeColour("card");
            pen.lineWidth = 2;
            pen.beginPath();
            pen.arc(this.xAxis.place(curve.series.x[i]), this.yAxis.place(mean), 4.5, 0, 7);
            pen.fill();
            pen.stroke();
        }
    }

    /* The point a curve has at x, -1 where the curve has not begun or is over. */
    indexAt(curve, x) {
        const i = nearest(curve.series.x, x);
        const apart = i < 0 ? 0 : Math.abs(this.xAxis.place(curve.series.x[i]) - this.xAxis.place(x));
        const isEnd = i === 0 || i === curve.series.x.length - 1;
        return isEnd && apart > 12 && curve.series.x.length > 1 ? -1 : i;
    }

    valueAt(curve, i) {
        return this.smoothing() > 0 ? smoothed(curve.series.mean, this.smoothing())[i] : curve.series.mean[i];
    }

    smoothing() {
        return this.kind.isExact ? 0 : this.view.smoothing;
    }

    drawDrag(pen, height) {
        if (this.drag === null || this.dragNow === null) return;
        pen.fillStyle = themeColour("accent");
        pen.globalAlpha = 0.16;
        pen.fillRect(Math.min(this.drag, this.dragNow), PLOT.top, Math.abs(this.dragNow - this.drag), height - PLOT.top - PLOT.bottom);
        pen.globalAlpha = 1;
    }

    /* -- words ---------------------------------------------------------------------------- */

    /* The last value beside the title, when one curve is drawn. */
    showNow() {
        const curve = this.curves.length === 1 ? this.curves[0].series : null;
        let last = curve ? curve.mean.length - 1 : -1;
        while (last >= 0 && !isNumber(curve.mean[last])) last--;
        this.now.textContent = last >= 0 ? this.kind.format(curve.mean[last]) : "";
        if (!this.kind.hasKeys || this.curves.length < 2) return;
        this.now.replaceChildren(...this.curves.map((c) => {
            const swatch = el("span", {class: "swatch wide"});
            swatch.style.background = curveStyle(c.slot).colour;
            return el("span", {class: "key"}, swatch, c.name);
        }));
    }

    showTip(width) {
        const at = this.view.pointer;
        const isMine = this.view.pointerChart === this && at !== null && this.drag === null;
        if (!isMine) {
            this.tip.hidden = true;
            return;
        }
        const rows = this.tipRows(at);
        this.tip.replaceChildren(el("div", {class: "tip-head"}, X_AXES[this.view.x].text + " " + X_AXES[this.view.x].format(this.tipX(at))), ...rows);
        this.tip.hidden = false;
        const x = this.xAxis.place(at);
        const isLeft = x > width / 2;
        this.tip.style.left = isLeft ? "auto" : x + 14 + "px";
        this.tip.style.right = isLeft ? width - x + 14 + "px" : "auto";
    }

    tipX(at) {
        const xs = this.curves.length ? this.curves[0].series.x : [];
        const i = nearest(xs, at);
        return i < 0 ? at : xs[i];
    }

    tipRows(at) {
        const rows = [];
        for (const curve of this.curves) {
            const i = this.indexAt(curve, at);
            if (i < 0) continue;
            const s = curve.series;
            const mean = this.valueAt(curve, i);
            const text = isNumber(mean) ? this.kind.format(mean) : "not a number";
            const span = s.min[i] !== s.max[i] ? this.kind.format(s.min[i]) + " to " + this.kind.format(s.max[i]) : "";
            rows.push(tipRow(curveStyle(curve.slot).colour, this.curves.length > 1 ? curve.name : "", text, span));
        }
        const near = this.markers.filter((m) => Math.abs(this.xAxis.place(m.x) - this.xAxis.place(at)) < 5);
        for (const marker of near.slice(0, 3)) rows.push(el("div", {class: "tip-note"}, marker.text));
        return rows;
    }

    /* -- pointer and keys ------------------------------------------------------------------ */

    pixelOf(event) {
        const box = this.canvas.getBoundingClientRect();
        return Math.min(Math.max(event.clientX - box.left, PLOT.left), box.width - PLOT.right);
    }

    pointerMoved(event) {
        if (!this.xAxis || !this.hasPoints()) return;
        const pixel = this.pixelOf(event);
        this.dragNow = pixel;
        this.view.point(this, this.xAxis.value(pixel));
    }

    pointerDown(event) {
        if (!this.xAxis || event.pointerType === "touch" || event.button !== 0) return;
        this.drag = this.dragNow = this.pixelOf(event);
        this.canvas.setPointerCapture(event.pointerId);
    }

    pointerUp(event) {
        if (this.drag === null) return;
        const from = Math.min(this.drag, this.pixelOf(event));
        const to = Math.max(this.drag, this.pixelOf(event));
        this.drag = null;
        if (to - from >= 6) this.view.zoomTo([this.xAxis.value(from), this.xAxis.value(to)]);
        else this.draw();
    }

    pointerLeft() {
        this.drag = null;
        if (this.view.pointerChart === this) this.view.point(null, null);
    }

    keyPressed(event) {
        if (!this.xAxis || !this.hasPoints() || event.ctrlKey || event.metaKey || event.altKey) return;
        const xs = this.curves.find((c) => c.series.x.length > 0).series.x;
        const at = this.view.pointer === null ? xs[xs.length - 1] : this.view.pointer;
        const i = nearest(xs, at);
        const stride = event.shiftKey ? 10 : 1;
        const go = (n) => this.view.point(this, xs[Math.min(xs.length - 1, Math.max(0, n))]);
        const zoom = (share) => {
            const half = ((this.xAxis.high - this.xAxis.low) * share) / 2;
            this.view.zoomTo([Math.max(0, at - half), at + half]);
        };
        const keys = {
            ArrowLeft: () => go(i - stride), ArrowRight: () => go(i + stride), Home: () => go(0), End: () => go(xs.length - 1),
            "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
            0: () => this.view.zoomTo(null), Escape: () => this.view.zoomTo(null),
        };
        if (!keys[event.key]) return;
        event.preventDefault();
        keys[event.key]();
    }
}

function tipRow(colour, name, value, note) {
    const swatch = el("span", {class: "swatch"});
    swatch.style.background = colour;
    return el("div", {class: "tip-row"}, swatch, name ? el("span", {class: "tip-name"}, name) : null,
        el("b", {}, value), note ? el("span", {class: "tip-note"}, note) : null);
}

/* The index of the value of a rising list that is nearest to x, -1 of an empty one. */
function nearest(xs, x) {
    let low = 0;
    let high = xs.length - 1;
    if (high < 0) return -1;
    while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (xs[middle] < x) low = middle;
        else high = middle;
    }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}

/* Averages of all values around each, weighted by weight^distance, so that a curve is not
 * late as one that averages the past is; gaps stay gaps. */
function smoothed(values, weight) {
    const run = (list) => {
        let sum = 0;
        let mass = 0;
        return list.map((value) => {
            sum *= weight;
            mass *= weight;
            const before = [sum, mass];
            if (isNumber(value)) {
                sum += value;
                mass += 1;
            }
            return before;
        });
    };
    const before = run(values);
    const after = run(values.slice().reverse()).reverse();
    return values.map((value, i) => (isNumber(value) ? (before[i][0] + after[i][0] + value) / (before[i][1] + after[i][1] + 1) : value));
}

/* Where a step's time goes, of one run: four shares on each other, up to the whole. */
const SHARES = [
    ["share_compute", "compute", "share-compute"],
    ["share_waiting", "waiting for other ranks", "share-waiting"],
    ["share_reader", "reading data", "share-reader"],
    ["share_optimizer", "optimizer", "share-optimizer"],
];

class ShareChart extends Chart {
    hasLog() {
        return false;
    }

    yRange() {
        return [0, 1];
    }

    tickText(value) {
        return Math.round(100 * value) + "\u00a0%";
    }

    showNow() {}

    drawCurves(pen) {
        if (this.curves.length === 0) return;
        const xs = this.curves[0].series.x;
        let floor = xs.map(() => 0);
        this.curves.forEach((curve, k) => {
            const top = xs.map((_, i) => Math.min(1, floor[i] + (curve.series.mean[i] || 0)));
            pen.fillStyle = themeColour(SHARES[k][2]);
            pen.beginPath();
            for (let i = 0; i < xs.length; i++) pen.lineTo(this.xAxis.place(xs[i]), this.yAxis.place(top[i]));
            for (let i = xs.length - 1; i >= 0; i--) pen.lineTo(this.xAxis.place(xs[i]), this.yAxis.place(floor[i]));
            pen.fill();
            floor = top;
        });
    }

    drawPointer(pen, height) {
        const curves = this.curves;
        this.curves = [];
        super.drawPointer(pen, height);
        this.curves = curves;
    }

    tipRows(at) {
        return this.curves.map((curve, k) => {
            const i = nearest(curve.series.x, at);
            return i < 0 ? null : tipRow(themeColour(SHARES[k][2]), SHARES[k][1], formatShare(curve.series.mean[i]), "");
        }).filter((row) => row !== null);
    }
}
