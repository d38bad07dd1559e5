/*
 * pipeline - one step of the pipeline: a row for each stage, time to the right, a box for
 * each forward and backward with the number of its micro-batch. A traced step is drawn as
 * it went; without one, the schedule that its layout computes.
 */

class PipelineView {
    constructor(box) {
        this.box = box;
        this.note = el("p", {class: "advice"});
        this.canvas = el("canvas", {tabindex: "0", role: "img"});
        this.plot = el("div", {class: "map"}, this.canvas);
        this.read = el("p", {class: "read", role: "status"});
        this.keys = el("div", {class: "keys"});
        this.box.append(el("div", {class: "head"}, el("h2", {}, "Pipeline")), this.note, this.plot,
            el("div", {class: "bar small"}, this.read, el("span", {class: "grow"}), this.keys));
        this.at = -1;
        this.canvas.addEventListener("pointermove", (event) => this.pointAt(event));
        this.canvas.addEventListener("pointerleave", () => this.readOut(-1));
        this.canvas.addEventListener("keydown", (event) => this.keyPressed(event));
    }

    set(data) {
        const boxes = ((data && data.boxes) || []).filter((b) => isNumber(b.start) && isNumber(b.end) && isNumber(b.stage));
        this.boxes = boxes;
        // of one stage only what was traced says anything
        this.box.hidden = boxes.length === 0 || (!data.traced && boxes.every((b) => b.stage === 0));
        if (boxes.length === 0) return;
        this.isSeconds = data.unit === "seconds";
        this.stages = 1 + boxes.reduce((most, b) => Math.max(most, b.stage), 0);
        this.first = boxes.reduce((least, b) => Math.min(least, b.start), Infinity);
        this.last = boxes.reduce((most, b) => Math.max(most, b.end), -Infinity);
        const kinds = [...new Set(boxes.map((b) => b.kind))];
        this.keys.replaceChildren(...kinds.map((kind) => {
            const swatch = el("span", {class: "swatch"});
            swatch.style.background = this.colour(kind);
            return el("span", {class: "key"}, swatch, kind);
        }));
        this.note.textContent = this.describe(data);
        this.canvas.setAttribute("aria-label", "Pipeline of " + this.stages + " stages. " + this.note.textContent);
        this.draw();
    }

    describe(data) {
        const span = this.last - this.first;
        const busy = this.boxes.reduce((sum, b) => sum + (b.end - b.start), 0);
        const idle = 1 - busy / (span * this.stages);
        const what = data.traced
            ? "The last traced step" + (isNumber(data.step) ? ", " + formatCount(data.step) : "") + ", as it went"
            : "No traced step; this is the schedule of the run's layout";
        return what + ": " + this.stages + (this.stages === 1 ? " stage" : " stages") +
            (this.isSeconds ? ", " + formatSeconds(span) : "") + ", idle " + formatShare(Math.max(0, idle)) + " of the time.";
    }

    colour(kind) {
        const known = {forward: "share-compute", backward: "share-waiting", optimizer: "share-optimizer", reader: "share-reader"};
        return themeColour(known[kind] || "mark");
    }

    draw() {
        if (!this.boxes || this.boxes.length === 0 || this.plot.clientWidth < 40) return;
        const width = this.plot.clientWidth;
        const row = Math.min(34, Math.max(10, Math.floor(360 / this.stages)));
        const left = 62;
        const height = row * this.stages + 22;
        this.canvas.style.height = height + "px";
        const pen = fitCanvas(this.canvas, width, height);
        const axis = new Axis(this.first, this.last, left, width - 8, false);
        this.area = {left, row, axis};
        pen.font = "11px system-ui, sans-serif";
        pen.textBaseline = "middle";
        pen.textAlign = "right";
        pen.fillStyle = themeColour("dim");
        for (let s = 0; s < this.stages; s++) pen.fillText("stage " + s, left - 8, s * row + row / 2);
        this.boxes.forEach((b, i) => this.drawBox(pen, b, i === this.at));
        this.drawTimes(pen, width, height);
    }

    drawBox(pen, b, isRead) {
        const {row, axis} = this.area;
        const x = axis.place(b.start);
        const w = Math.max(1, axis.place(b.end) - x - 1);
        pen.fillStyle = this.colour(b.kind);
        pen.fillRect(x, b.stage * row + 1, w, row - 3);
        if (isRead) {
            pen.strokeStyle = themeColour("text");
            pen.lineWidth = 2;
            pen.strokeRect(x, b.stage * row + 1, w, row - 3);
        }
        const text = String(b.label === undefined || b.label === null ? "" : b.label);
        if (text && row >= 12 && pen.measureText(text).width + 4 < w) {
            pen.fillStyle = themeColour("on-share");
            pen.textAlign = "center";
            pen.fillText(text, x + w / 2, b.stage * row + row / 2);
        }
    }

    drawTimes(pen, width, height) {
        pen.fillStyle = themeColour("dim");
        pen.textAlign = "center";
        for (const value of linearTicks(0, this.last - this.first, Math.max(2, Math.floor(width / 120)))) {
            const text = this.isSeconds ? formatSeconds(value) : formatValue(value, 3);
            const x = this.area.axis.place(this.first + value);
            const half = pen.measureText(text).width / 2;
            pen.fillText(text, Math.min(x, width - half - 2), height - 9);
        }
    }

    readOut(i) {
        if (i === this.at) return;
        this.at = i;
        const b = this.boxes[i];
        const length = b ? (this.isSeconds ? formatSeconds(b.end - b.start) : formatValue(b.end - b.start, 3)) : "";
        this.read.textContent = b ? "Stage " + b.stage + ", " + b.kind + (b.label !== undefined ? " " + b.label : "") + ": " + length : "";
        this.draw();
    }

    pointAt(event) {
        if (!this.area) return;
        const box = this.canvas.getBoundingClientRect();
        const stage = Math.floor((event.clientY - box.top) / this.area.row);
        const t = this.area.axis.value(event.clientX - box.left);
        this.readOut(this.boxes.findIndex((b) => b.stage === stage && b.start <= t && t < b.end));
    }

    keyPressed(event) {
        const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
        if (!step || !this.boxes.length) return;
        event.preventDefault();
        this.readOut(Math.min(this.boxes.length - 1, Math.max(0, this.at + step)));
    }
}
