// The planar arm: sampled arms faint, the densest bold, and a target to drag.

const ARM_VIEW = { left: -0.75, right: 2.25, bottom: -1.5, top: 1.5 };
const ARMS_SHOWN = 120;
const ARMS_JUDGED = 1500;

// Joints of one arm, rail first: horizontal and vertical of each.
function armJoints(scene, x, at, out) {
  let angle = 0, across = 0, up = x[at + scene.x[0]];
  out[0] = across;
  out[1] = up;
  for (let k = 0; k < 3; k++) {
    angle += x[at + scene.x[k + 1]];
    across += scene.lengths[k] * Math.cos(angle);
    up += scene.lengths[k] * Math.sin(angle);
    out[2 * k + 2] = across;
    out[2 * k + 3] = up;
  }
  return out;
}

class Arm {
  constructor(scene, move) {
    this.scene = scene;
    this.canvas = byId("arm");
    this.handle = byId("target");
    this.move = move;
    byId("arm-box").hidden = false;
    this.handle.addEventListener("pointerdown", (event) => this.grab(event));
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "touch") this.grab(event);
    });
    this.handle.addEventListener("keydown", (event) => this.key(event));
  }

  grab(event) {
    event.preventDefault();
    this.handle.focus({ preventScroll: true });
    const follow = (e) => {
      const box = this.canvas.getBoundingClientRect();
      const across = ARM_VIEW.left + ((e.clientX - box.left) / box.width) * (ARM_VIEW.right - ARM_VIEW.left);
      const up = ARM_VIEW.top - ((e.clientY - box.top) / box.height) * (ARM_VIEW.top - ARM_VIEW.bottom);
      this.to(across, up);
    };
    const target = event.currentTarget;
    target.setPointerCapture(event.pointerId);
    target.addEventListener("pointermove", follow);
    const release = () => {
      target.removeEventListener("pointermove", follow);
      target.removeEventListener("pointerup", release);
      target.removeEventListener("pointercancel", release);
    };
    target.addEventListener("pointerup", release);
    target.addEventListener("pointercancel", release);
    follow(event);
  }

  key(event) {
    const step = event.shiftKey ? 0.1 : 0.02;
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key] || [];
    if (dx === undefined) return;
    event.preventDefault();
    this.to(this.across + dx * step, this.up + dy * step);
  }

  to(across, up) {
    const held = (v, low, high) => Math.min(high, Math.max(low, v));
    this.move(held(across, ARM_VIEW.left, ARM_VIEW.right), held(up, ARM_VIEW.bottom, ARM_VIEW.top));
  }

  place(y) {
    [this.up, this.across] = this.scene.y.map((i) => y[i]);
    this.handle.style.left = `${(100 * (this.across - ARM_VIEW.left)) / (ARM_VIEW.right - ARM_VIEW.left)}%`;
    this.handle.style.top = `${(100 * (ARM_VIEW.top - this.up)) / (ARM_VIEW.top - ARM_VIEW.bottom)}%`;
    this.handle.setAttribute(
      "aria-label",
      `Target, ${this.across.toFixed(2)} to the right and ${this.up.toFixed(2)} up; arrow keys move it`,
    );
  }

  draw({ x, n, mode, truth }) {
    const size = this.canvas.shownWidth;
    if (!size) return;
    const context = fitted(this.canvas, size, size);
    const scale = size / (ARM_VIEW.right - ARM_VIEW.left);
    const px = (v) => (v - ARM_VIEW.left) * scale;
    const py = (v) => (ARM_VIEW.top - v) * scale;
    const d = x.length / n, joints = new Float64Array(8);
    const trace = (values, at) => {
      armJoints(this.scene, values, at, joints);
      context.moveTo(px(joints[0]), py(joints[1]));
      for (let k = 1; k < 4; k++) context.lineTo(px(joints[2 * k]), py(joints[2 * k + 1]));
    };
    context.lineJoin = "round";
    context.strokeStyle = COLOURS.line;
    context.lineWidth = 3;
    context.beginPath();
    context.moveTo(px(0), 0);
    context.lineTo(px(0), size);
    context.stroke();
    context.strokeStyle = COLOURS.one;
    context.lineWidth = 1.2;
    context.globalAlpha = 0.13;
    for (let k = 0; k < Math.min(n, ARMS_SHOWN); k++) {
      context.beginPath();
      trace(x, k * d);
      context.stroke();
    }
    context.globalAlpha = 1;
    if (truth) this.bold(context, trace, truth, joints, px, py, COLOURS.three);
    if (mode) this.bold(context, trace, mode, joints, px, py, COLOURS.two);
    byId("miss").textContent = this.missed(x, Math.min(n, ARMS_JUDGED), d, joints);
  }

  bold(context, trace, values, joints, px, py, colour) {
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = 4;
    context.beginPath();
    trace(values, 0);
    context.stroke();
    for (let k = 0; k < 4; k++) {
      context.beginPath();
      context.arc(px(joints[2 * k]), py(joints[2 * k + 1]), 5, 0, 2 * Math.PI);
      context.fill();
    }
  }

  // How far the sampled arms, put through the arm's own equations, end from the target.
  missed(x, n, d, joints) {
    const distances = new Float64Array(n);
    for (let k = 0; k < n; k++) {
      armJoints(this.scene, x, k * d, joints);
      distances[k] = Math.hypot(joints[6] - this.across, joints[7] - this.up);
    }
    distances.sort();
    const [half, most] = [0.5, 0.95].map((p) => quantile(distances, p).toPrecision(2));
    return `Half of the arms end within ${half} of the target, 95 % within ${most}.`;
  }
}
