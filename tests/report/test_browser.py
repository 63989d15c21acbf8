"""Pages in a real browser: they run without complaint, answer to hand and keyboard, and give the model's numbers."""

import re
import time
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isr.equations import extract
from isr.posterior.maximum import reach
from isr.posterior.posterior import Posterior
from isr.problems import kinematics
from report.report_models import HOSTILE, PAGES, STILL

PATIENCE = 60.0
LIVE = [name for name in PAGES if name not in STILL]


def until(page, expression, what):
    """Wait for a JavaScript expression; the page's own policy forbids what Playwright would wait with."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if page.evaluate(expression):
            return
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE:g} s for {what}")


def settle(page):
    until(
        page,
        "isrReport.explorer && isrReport.explorer.settled >= isrReport.explorer.wanted",
        "the draws to settle",
    )
    until(page, "!isrReport.explorer.scheduled", "the picture to be painted")


@pytest.fixture
def open_page(browser, page_of):
    """Opens a model's page; whatever the browser complains about, or loads, fails the test at its end."""
    contexts, complaints = [], []

    def opened(name, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request", lambda r: None if re.match("file:|blob:|data:", r.url) else complaints.append(r.url)
        )
        path, data = page_of(name)
        page.goto(path.as_uri())
        if name not in STILL:
            until(page, "isrReport.explorer && isrReport.explorer.settled >= 2", "the first draws")
            settle(page)
        return page, data

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def table(page):
    return page.locator("#summary-body tr").all_inner_texts()


def shown_draws(page):
    """The draws on the screen with the noise they came from."""
    found = page.evaluate(
        """async () => {
          const e = isrReport.explorer, { x, n, y, mode } = e.draws;
          const noise = await e.sampler.noise(n, e.seed);
          const { density } = mode, { summary } = e;
          return { x: [...x], n, y: y ? [...y] : null, mode: [...mode.x], density, noise, summary };
        }"""
    )
    n = found["n"]
    return {**found, "x": np.reshape(found["x"], (n, -1)), "noise": np.reshape(found["noise"], (n, -1))}


def drawn_by(flow, noise, y):
    """What the model itself makes of the noise."""
    y = None if y is None else np.asarray(y)
    if flow.noise:
        k = flow.n_observed
        noise = np.column_stack([y + np.asarray(flow.noise) * noise[:, :k], noise[:, k:]])
    return flow.inverse(noise, y if flow.condition_map is not None else None)[0]


@pytest.mark.parametrize("name", [n if n == "arm" else pytest.param(n, marks=pytest.mark.slow) for n in LIVE])
def test_draws_and_mode_are_those_of_the_model(open_page, name):
    page, data = open_page(name)
    found = shown_draws(page)
    assert found["n"] == 5000
    expected = drawn_by(data.bundle.model, found["noise"], found["y"])
    assert_allclose(found["x"], expected, rtol=1e-9, atol=1e-9)
    # The mode is the densest point, and its density the model's.
    y = None if found["y"] is None else np.asarray(found["y"])
    assert_allclose(
        found["density"], data.bundle.model.log_prob(np.array([found["mode"]]), y)[0], rtol=1e-9, atol=1e-9
    )
    ordinary = np.linalg.norm(found["noise"], axis=1) < reach(data.bundle.model.bijection.dim)
    assert found["density"] >= np.max(data.bundle.model.log_prob(found["x"][ordinary], y)) - 1e-9


def unfold(page):
    page.evaluate("() => document.querySelectorAll('details').forEach(part => { part.open = true; })")


@pytest.mark.parametrize("name", ["arm", "joint", "bounded"])
def test_the_mode_is_the_one_python_gives(open_page, name):
    page, data = open_page(name)
    found = shown_draws(page)
    assert_allclose(found["mode"], Posterior(data.bundle.model, found["y"]).map(), atol=1e-5)


def test_a_mode_that_is_a_spike_is_told_in_words(open_page):
    page, data = open_page("spiked")
    posterior = Posterior(data.bundle.model, [0.0], x_names=data.bundle.x_names)
    assert "bound of angle" in posterior.map_note
    assert page.locator("#map-note").inner_text() == f"No densest point: {posterior.map_note}."
    assert page.locator("#summary-body tr:nth-child(2) td").all_inner_texts()[0] == "–"


@pytest.mark.parametrize("name", ["arm", "bounded"])
def test_figures_in_the_table_are_those_of_the_draws(open_page, name):
    page, _ = open_page(name)
    found = shown_draws(page)
    quantiles = np.quantile(found["x"], [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    for i, summary in enumerate(found["summary"]):
        assert_allclose(
            [summary[q] for q in ("q05", "q25", "q50", "q75", "q95")], quantiles[:, i], rtol=1e-9, atol=1e-9
        )
        texts = page.locator(f"#summary-body tr:nth-child({i + 1}) td").all_inner_texts()
        digits = lambda text: [float(v) for v in text.replace("−", "-").split(" … ")]  # noqa: E731
        assert_allclose(digits(texts[0]), found["mode"][i], atol=0.01 * summary["sd"])
        assert_allclose(digits(texts[1]), quantiles[2, i], atol=0.01 * summary["sd"])
        assert_allclose(digits(texts[2]), quantiles[[1, 3], i], atol=0.01 * summary["sd"])
        assert_allclose(digits(texts[3]), quantiles[[0, 4], i], atol=0.01 * summary["sd"])


def picture(page, canvas="corner"):
    return page.evaluate(f"document.getElementById('{canvas}').toDataURL()")


@pytest.mark.parametrize("name", ["arm", "joint", "density", "padded"])
def test_a_slider_moves_what_is_shown(open_page, name):
    page, _ = open_page(name)
    before, rows = picture(page), table(page)
    page.locator("#slider-0").focus()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    settle(page)
    assert picture(page) != before
    assert table(page) != rows
    field = float(page.locator("#field-0").input_value())
    control = page.evaluate("isrReport.explorer.controls[0]")
    assert_allclose(field, control["value"] + 0.08 * (control["high"] - control["low"]), rtol=1e-4)


def test_a_number_typed_is_the_number_used(open_page):
    page, data = open_page("arm")
    page.locator("#field-1").fill("1.234567")
    settle(page)
    found = shown_draws(page)
    assert found["y"][1] == 1.234567
    assert_allclose(found["x"], drawn_by(data.bundle.model, found["noise"], found["y"]), rtol=1e-9, atol=1e-9)
    assert_allclose(float(page.locator("#slider-1").input_value()), 1.234567)


def target(page):
    return [float(page.locator(f"#field-{i}").input_value()) for i in range(2)]


def test_the_target_is_dragged_by_mouse(open_page):
    page, _ = open_page("arm")
    assert target(page) == list(kinematics.TARGET)
    before = picture(page, "arm")
    page.locator("#arm").scroll_into_view_if_needed()
    box = page.locator("#target").bounding_box()
    arm = page.locator("#arm").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 60, y - 40, steps=6)
    page.mouse.up()
    settle(page)
    assert picture(page, "arm") != before
    scale = 3.0 / arm["width"]
    assert_allclose(target(page), [0.0 + 40 * scale, 1.5 - 60 * scale], atol=1.5 * scale)


def test_the_target_is_moved_by_keys(open_page):
    page, _ = open_page("arm")
    page.locator("#target").focus()
    for key in ("ArrowUp", "ArrowUp", "Shift+ArrowLeft"):
        page.keyboard.press(key)
    settle(page)
    assert_allclose(target(page), [0.04, 1.4], atol=1e-9)
    assert "0.04 up" in page.locator("#target").get_attribute("aria-label")


def test_the_target_is_dragged_by_touch(open_page):
    page, _ = open_page("arm", viewport={"width": 390, "height": 844}, has_touch=True)
    page.evaluate(
        """() => {
          const handle = document.getElementById("target");
          handle.setPointerCapture = () => {};
          const box = handle.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
          const send = (type, dx) => handle.dispatchEvent(new PointerEvent(type, {
            pointerId: 1, pointerType: "touch", clientX: x + dx, clientY: y, bubbles: true }));
          send("pointerdown", 0);
          send("pointermove", -50);
          send("pointerup", -50);
        }"""
    )
    settle(page)
    assert target(page)[1] < 1.3
    assert page.evaluate("getComputedStyle(document.getElementById('target')).touchAction") == "none"


def test_arms_end_where_the_problem_says(open_page):
    page, _ = open_page("arm")
    found = shown_draws(page)
    missed = np.linalg.norm(kinematics.forward(found["x"][:1500]) - np.array(kinematics.TARGET), axis=1)
    numbers = [float(v) for v in re.findall(r"within ([\d.]+\d)", page.locator("#miss").inner_text())]
    assert_allclose(numbers, np.quantile(missed, [0.5, 0.95]), rtol=0.06)


def test_an_observation_unlike_the_training_data_is_said_to_be(open_page):
    page, data = open_page("arm")
    assert page.locator("#unlike").inner_text() == ""
    found = []
    for y in ([0.1, 1.6], [0.0, 1.9], [-1.9, 1.9], [0.0, 2.6], [6.0, 1.0]):
        page.evaluate("(y) => isrReport.explorer.setAll(y)", y)
        settle(page)
        found.append(data.training.check(y).unusual)
        assert bool(page.locator("#unlike").inner_text()) == found[-1]
    assert len(set(found)) == 2
    assert "vertical" in page.locator("#unlike").inner_text()


def test_a_row_of_the_data_brings_its_truth(open_page):
    page, data = open_page("arm")
    page.locator("#row").click()
    settle(page)
    assert_allclose(target(page), data.y[0], rtol=1e-5)
    truths = page.locator("#summary-body tr td:last-child").all_inner_texts()
    assert_allclose([float(t.replace("−", "-")) for t in truths], data.x[0], atol=0.02)
    page.locator("#slider-0").focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert page.locator("#summary-body tr td:last-child").first.inner_text() == ""


@pytest.mark.slow
def test_new_draws_differ_and_more_can_be_had(open_page):
    page, data = open_page("arm")
    before = shown_draws(page)["x"]
    page.locator("#again").click()
    settle(page)
    assert not np.array_equal(shown_draws(page)["x"], before)
    page.locator("#draws").select_option("20000")
    settle(page)
    found = shown_draws(page)
    assert found["x"].shape == (20_000, 4)
    assert_allclose(found["x"], drawn_by(data.bundle.model, found["noise"], found["y"]), rtol=1e-9, atol=1e-9)


def test_draws_are_saved_as_they_are(open_page, tmp_path):
    page, _ = open_page("arm")
    with page.expect_download() as download:
        page.locator("#save").click()
    download.value.save_as(tmp_path / "draws.csv")
    lines = (tmp_path / "draws.csv").read_text().splitlines()
    assert lines[0] == '"height","angle1","angle2","angle3"'
    assert_allclose(np.loadtxt(lines[1:], delimiter=","), shown_draws(page)["x"], rtol=0, atol=0)


def test_zoom_shows_the_draws_closer(open_page):
    page, _ = open_page("arm")
    before = picture(page)
    page.locator("#zoom").check()
    assert picture(page) != before


def test_a_latent_moves_its_point(open_page):
    page, data = open_page("density")
    page.locator("#field-0").fill("1")
    page.locator("#field-1").fill("-0.5")
    settle(page)
    point = page.evaluate("[...isrReport.explorer.draws.point]")
    assert_allclose(point, data.bundle.model.inverse(np.array([[1.0, -0.5]]))[0][0], rtol=1e-9)
    density = float(page.locator("#density").inner_text().split()[-1].replace("−", "-"))
    assert_allclose(density, data.bundle.model.log_prob(np.array([point]))[0], atol=1e-3)


def test_choosing_a_point_of_the_front_shows_its_equations(open_page):
    page, _ = open_page("density")
    unfold(page)
    panel = page.locator("#front-equations")
    points = page.locator("[role=radio]")
    assert points.count() == 3
    texts = [panel.inner_text()]

    def shown(complexity):
        until(
            page,
            f"document.querySelector('#front-equations h3').textContent.includes('{complexity},')",
            "equations",
        )
        texts.append(panel.inner_text())

    points.nth(0).click()
    shown("Complexity 8")
    assert points.nth(0).get_attribute("aria-checked") == "true"
    page.keyboard.press("ArrowLeft")  # round to the last one
    shown("Complexity 60")
    assert points.nth(2).evaluate("node => node === document.activeElement")
    page.locator("#front-table button").nth(1).click()
    shown("Complexity 14")
    assert texts[3] == texts[0]
    assert len(set(texts)) == 3
    assert "were not saved" in texts[2]


def test_copy_buttons_copy_the_sources(open_page):
    page, data = open_page("arm", permissions=["clipboard-read", "clipboard-write"])
    expressions = extract(data.bundle.model, data.bundle.x_names, data.bundle.y_names, data.bundle.units)
    for name, text in (("Python", expressions.code("python")), ("C", expressions.code("c"))):
        page.locator(f"[data-copy={name}]").click()
        until(page, f"document.getElementById('copied').textContent.startsWith('{name} ')", "the copy")
        assert page.evaluate("navigator.clipboard.readText()") == text


def test_hostile_names_run_nothing(open_page):
    page, _ = open_page("hostile")
    unfold(page)
    for point in page.locator("[role=radio]").all():
        point.click()
    page.locator("#row").click()
    settle(page)
    assert page.evaluate("window.hacked") is None
    assert page.locator("h1").inner_text() == HOSTILE[0]
    labels = page.locator("#controls label").all_inner_texts()
    assert labels == list(HOSTILE[4:])


NAMELESS = """() => [...document.querySelectorAll(
    "button, input, select, a, canvas, svg:not([aria-hidden]), [role=radio], [role=region]")]
  .filter((node) => node.checkVisibility())
  .filter((node) => {
    const named = node.getAttribute("aria-labelledby");
    const words = node.getAttribute("aria-label") || (named && document.getElementById(named).textContent)
      || [...(node.labels || [])].map((l) => l.textContent).join("") || node.textContent;
    return !words.trim();
  }).map((node) => node.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("name", PAGES)
def test_every_control_and_picture_has_a_name_and_fits_a_phone(open_page, name):
    page, _ = open_page(name)
    assert page.evaluate(NAMELESS) == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))
    assert page.evaluate("document.documentElement.lang") == "en"
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((h) => Number(h.tagName[1]))")
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_all_controls_are_reached_by_tab_and_show_it(open_page):
    page, _ = open_page("density")
    unfold(page)
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        found = page.evaluate(
            """() => { const node = document.activeElement;
              if (node === document.body) return null;
              const style = getComputedStyle(node);
              const ring = node.querySelector(".reach");
              const seen = style.outlineStyle !== "none" || (ring && getComputedStyle(ring).strokeWidth === "3px");
              return [node.id || node.dataset.copy || node.dataset.point || node.textContent, Boolean(seen)]; }"""
        )
        if found is None:
            break
        reached.add(found[0])
        assert found[1], found
    assert {
        "theme",
        "field-0",
        "slider-0",
        "again",
        "save",
        "draws",
        "zoom",
        "LaTeX",
        "Python",
        "C",
        "1",
    } <= reached


CONTRASTS = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest("script, style, .unseen, noscript")) continue;
    const style = getComputedStyle(node);
    const ink = parse(node instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push([node.tagName, ratio.toFixed(2), node.textContent.slice(0, 40)]);
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["arm", "density"])
def test_text_stands_out_from_its_ground(open_page, name, scheme):
    page, _ = open_page(name, color_scheme=scheme)
    assert page.evaluate(CONTRASTS) == []


def test_the_theme_can_be_changed(open_page):
    page, _ = open_page("density", color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    before, drawn = page.evaluate(ground), picture(page)
    page.locator("#theme").click()
    assert page.evaluate(ground) != before
    assert picture(page) != drawn
    assert page.locator("#theme").get_attribute("aria-pressed") == "true"


def test_a_page_can_be_printed(open_page):
    page, _ = open_page("arm", color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert len(page.pdf()) > 10_000


def test_a_slow_machine_gets_fewer_draws_while_it_moves_and_all_of_them_at_rest(open_page):
    page, _ = open_page("arm")
    page.evaluate("() => { isrReport.explorer.pace = 1; isrReport.explorer.setAll([0.1, 1.4]); }")
    until(page, "isrReport.explorer.done === isrReport.explorer.wanted", "the quick draws")
    settle(page)
    assert shown_draws(page)["n"] == 5000


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["arm", "laws"])
def test_a_page_is_at_most_four_screens_long_before_anything_is_unfolded(open_page, name, width, scheme):
    page, _ = open_page(name, viewport={"width": width, "height": 900}, color_scheme=scheme)
    height, wide = page.evaluate(
        "[document.documentElement.scrollHeight, document.documentElement.scrollWidth]"
    )
    assert height <= 4 * 900
    assert wide <= width
    first = page.locator("main > section").first
    assert first.get_attribute("id") in ("law", "equations")


def test_a_link_opens_the_section_it_leads_to(open_page):
    page, _ = open_page("arm")
    table = page.locator("#checks table")
    assert not table.is_visible()
    page.locator("nav a[href='#checks']").click()
    table.wait_for(state="visible", timeout=5000)


def test_the_theme_button_says_what_it_does(open_page):
    page, _ = open_page("laws", color_scheme="dark")
    assert page.locator("#theme").inner_text() == "Switch to light"
    page.locator("#theme").click()
    assert page.locator("#theme").inner_text() == "Switch to dark"


def test_numbers_are_written_as_people_write_them(open_page):
    page, _ = open_page("laws")
    shown = page.evaluate(
        "[[80, 1e-12], [0.0012, 1e-15], [1.25e-9, 1e-20], [2.5e12, 1e10], [-80, 0]].map((p) => isrReport.shown(...p))"
    )
    assert shown == ["80", "0.0012", "1.25·10⁻⁹", "2.5·10¹²", "−80.0"]


def test_a_density_does_not_sag_at_a_bound(open_page):
    page, _ = open_page("bounded")
    grid = page.evaluate("""() => {
      const n = 20000, x = Float64Array.from({ length: n }, (_, i) => (i + 0.5) / n);
      return [...isrReport.densityAlong(x, n, 1, 0, -0.07, 1.07, 160, 0.05, [0, 1])];
    }""")
    middles = -0.07 + (np.arange(160) + 0.5) / 160 * 1.14
    inside = (middles > 0.01) & (middles < 0.99)
    assert_allclose(np.asarray(grid)[inside], 1.0, atol=0.03)
    assert_allclose(np.asarray(grid)[(middles < -0.01) | (middles > 1.01)], 0.0)


def test_a_law_stands_first_with_its_errors_prior_posterior_and_check(open_page):
    page, _ = open_page("laws")
    assert page.locator("main > section").first.get_attribute("id") == "equations"
    printed = page.locator("#equations math").first.text_content()
    assert re.search(r"0\.0\d+(\(\d+\))?", printed)
    assert "temperature" in printed
    text = page.locator("#law").inner_text()
    assert re.search(r"x given y\s+temperature = .*voltage", text)
    assert "temperature ~ uniform(10, 80)" in text
    assert "Posterior given voltage = 1.6" in text
    assert "Posterior predictive check" in text
    page.locator("nav a[href='#fits']").click()
    assert page.locator("#fits svg").count() == 3  # predictions, and residuals against two variables
