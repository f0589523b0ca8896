package deploy

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// metrics are the labels of each metric of Weir's, as the table of proxy/cluster
// says; a test of Weir's holds that table to what /metrics shows.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{"up": nil}
	for _, row := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)(?:\\{([a-z,]+)\\})?` \\|").FindAllStringSubmatch(read(t, "../../proxy/docs/metrics.md"), -1) {
		out[row[1]] = strings.FieldsFunc(row[2], func(r rune) bool { return r == ',' })
	}
	if len(out) < 20 {
		t.Fatalf("the table tells of %d metrics", len(out))
	}
	return out
}

// A reader understands queries, and knows what there is to ask for.
type reader struct {
	metrics map[string][]string
	used    map[string]bool // the metrics asked for so far
	wrong   []string        // what was asked for that there is not
}

func newReader(t *testing.T) *reader {
	t.Helper()
	return &reader{metrics: metrics(t), used: map[string]bool{}}
}

func (r *reader) missed(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// report fails the test for each thing that is wrong.
func (r *reader) report(t *testing.T) {
	t.Helper()
	for _, problem := range r.wrong {
		t.Error(problem)
	}
}

// labels are those that what the query answers has.
func (r *reader) labels(where, query string) []string {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		r.missed("%s: %s: %v", where, query, err)
		return nil
	}
	return r.of(where, expr)
}

func (r *reader) of(where string, node parser.Node) []string {
	switch e := node.(type) {
	case *parser.VectorSelector:
		return r.selected(where, e)
	case *parser.AggregateExpr:
		inside := r.of(where, e.Expr)
		for _, label := range e.Grouping {
			if !slices.Contains(inside, label) {
				r.missed("%s: there is no label %s to go %s", where, label, e)
			}
		}
		return e.Grouping
	case *parser.Call:
		var inside []string
		for _, arg := range e.Args {
			inside = append(inside, r.of(where, arg)...)
		}
		if e.Func.Name == "histogram_quantile" {
			if !slices.Contains(inside, "le") {
				r.missed("%s: no label le is left for %s", where, e)
			}
			inside = slices.DeleteFunc(slices.Clone(inside), func(label string) bool { return label == "le" })
		}
		return inside
	case *parser.BinaryExpr:
		left, right := r.of(where, e.LHS), r.of(where, e.RHS)
		if len(left) == 0 {
			return right
		}
		return left
	}
	var inside []string
	for child := range parser.ChildrenIter(node) {
		inside = append(inside, r.of(where, child)...)
	}
	return inside
}

// selected are the labels of one metric, and of the scrape that brought it.
func (r *reader) selected(where string, e *parser.VectorSelector) []string {
	name, bucket := strings.CutSuffix(e.Name, "_bucket")
	known, there := r.metrics[name]
	if !there {
		r.missed("%s: Weir has no metric %s", where, e.Name)
	}
	r.used[name] = true
	has := slices.Concat(known, []string{"job", "instance"})
	if bucket {
		has = append(has, "le")
	}
	for _, m := range e.LabelMatchers {
		if m.Name != "__name__" && !slices.Contains(has, m.Name) {
			r.missed("%s: %s has no label %s", where, e.Name, m.Name)
		}
	}
	return has
}

// A dashboard is what the tests need of Grafana's.
type dashboard struct {
	Title      string
	UID        string `json:"uid"`
	Templating struct {
		List []struct {
			Name       string
			Datasource struct{ UID string }
			Query      struct{ Query string }
		}
	}
	Panels []struct {
		ID         int
		Type       string
		Title      string
		Datasource struct{ UID string }
		GridPos    struct{ X, Y, W, H int }
		Targets    []struct{ Expr, LegendFormat string }
	}
}

func shown(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, "grafana/weir.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Each query of the dashboard is one that Prometheus understands, of metrics and
// labels that Weir has; each legend has labels that the query leaves; and each
// metric of Weir's is shown somewhere.
func TestDashboard_AsksForWhatThereIs(t *testing.T) {
	r := newReader(t)
	defer r.report(t)
	grafana := strings.NewReplacer("$__rate_interval", "1m", `"$instance"`, `".*"`, `"$route"`, `".*"`)
	d := shown(t)
	for _, p := range d.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			query := grafana.Replace(target.Expr)
			if strings.Contains(query, "$") {
				t.Errorf("%s has a variable that is not there: %s", p.Title, query)
			}
			left := r.labels(p.Title, query)
			for _, m := range regexp.MustCompile(`\{\{ *(\w+) *\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.Contains(left, m[1]) {
					t.Errorf("%s: the legend has %s, the answer only %v: %s", p.Title, m[1], left, query)
				}
			}
		}
	}
	for _, v := range d.Templating.List {
		m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Query.Query)
		if m == nil || !slices.Contains(r.labels("the variable "+v.Name, m[1]), m[2]) || v.Name != m[2] {
			t.Errorf("the variable %s is %s", v.Name, v.Query.Query)
		}
	}
	for name := range r.metrics {
		if !r.used[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// The panels lie side by side, and ask the data source that is provisioned.
func TestDashboard_LaysOutItsPanels(t *testing.T) {
	d, taken, ids := shown(t), map[[2]int]string{}, map[int]bool{}
	source := regexp.MustCompile(`uid: (\w+)`).FindStringSubmatch(read(t, "grafana/datasources.yaml"))[1]
	if d.Title == "" || d.UID == "" {
		t.Errorf("the dashboard is called %q, %q", d.Title, d.UID)
	}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %d %q stands twice, or has no name", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && p.Datasource.UID != source {
			t.Errorf("%s asks %q, want %q", p.Title, p.Datasource.UID, source)
		}
		at := p.GridPos
		if at.W < 1 || at.H < 1 || at.X+at.W > 24 {
			t.Errorf("%s lies at %+v of 24 columns", p.Title, at)
		}
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s lies on %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	for _, v := range d.Templating.List {
		if v.Datasource.UID != source {
			t.Errorf("the variable %s asks %q, want %q", v.Name, v.Datasource.UID, source)
		}
	}
}

// What an alert tells of is what its query leaves, of metrics and labels that Weir
// has.
func TestAlerts_AskForWhatThereIs(t *testing.T) {
	r := newReader(t)
	defer r.report(t)
	for _, a := range alerts(t, read(t, "weir.rules.yaml")) {
		left := r.labels(a.Alert, a.Expr)
		for _, text := range a.Annotations {
			for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
				if !slices.Contains(left, m[1]) {
					t.Errorf("%s tells of %s, which its query does not leave: %v", a.Alert, m[1], left)
				}
			}
		}
	}
}

// A metric and a label that are not there do not get past these tests.
func TestDashboard_MistakesAreSeen(t *testing.T) {
	for _, query := range []string{
		"weir_request_total", "rate(weir_requests_total[1m]", `weir_requests_total{status="200"}`,
		"sum by (limit) (weir_requests_total)", "histogram_quantile(0.9, sum by (route) (rate(weir_request_duration_seconds_bucket[1m])))",
	} {
		r := newReader(t)
		if r.labels("trial", query); len(r.wrong) == 0 {
			t.Errorf("%s is taken", query)
		}
	}
}
