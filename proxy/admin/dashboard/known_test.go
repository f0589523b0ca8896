package dashboard_test

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
)

// An outage is a weir whose shared store can be cut off.
func outage() (o admin.Options, cut func()) {
	o = options()
	away := error(nil)
	gone := errors.New("redis is away")
	statistics, leader, nodes := o.Statistics, o.Leader, o.Nodes
	o.Statistics = func(ctx context.Context, n int) (view.Statistics, error) {
		if away != nil {
			return view.Statistics{}, away
		}
		return statistics(ctx, n)
	}
	o.Leader = func(ctx context.Context) (view.Leadership, error) {
		if away != nil {
			return view.Leadership{Self: "node-a"}, away
		}
		return leader(ctx)
	}
	o.Nodes = func(ctx context.Context) (admin.Nodes, error) {
		if away != nil {
			return admin.Nodes{}, away
		}
		return nodes(ctx)
	}
	o.Ready = func(context.Context) admin.Readiness {
		if away != nil {
			return admin.Readiness{Ready: true, Checks: map[string]string{"store": away.Error()}}
		}
		return admin.Readiness{Ready: true, Checks: map[string]string{"store": "ok"}}
	}
	o.Self = func() view.Member { return view.Member{ID: "node-a", Generation: 7} }
	return o, func() { away = gone }
}

// cells are the texts of the cells of a page: of tables and of tiles.
func (p page) cells() (all []string) {
	for _, m := range regexp.MustCompile(`(?s)<(?:td|dd)[^>]*>(.*?)</(?:td|dd)>`).FindAllStringSubmatch(p.text, -1) {
		all = append(all, strings.TrimSpace(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(m[1], "")))
	}
	return all
}

const storeBanner = "<strong>The store is unreachable</strong>: redis is away"

// What is not known is –, and never 0: in every cell of every page.
func TestDashboard_UnknownIsNotZero(t *testing.T) {
	o, cut := outage()
	cut()
	b := open(t, o)
	for _, path := range []string{"/", "/dashboard/routes", "/dashboard/nodes"} {
		p := b.get(path)
		p.shows(t, http.StatusOK, storeBanner, "–")
		for _, cell := range p.cells() {
			if regexp.MustCompile(`^0( |$)|^0\.0|0 %`).MatchString(cell) && !strings.Contains(cell, "since start") {
				t.Errorf("%s: a cell is %q; want – for what is not known", path, cell)
			}
		}
	}
}

// While the store is away, the last known numbers stay, in grey and with their time, and each page has one
// banner that says why.
func TestDashboard_LastKnownNumbersStay(t *testing.T) {
	o, cut := outage()
	b := open(t, o)
	for _, path := range []string{"/", "/dashboard/routes", "/dashboard/nodes", "/dashboard/keys", "/dashboard/explain", "/dashboard/config"} {
		if p := b.get(path); strings.Contains(p.text, "The store is unreachable") || strings.Contains(p.text, `class="tiles old"`) {
			t.Errorf("%s: it says that the store is away", path)
		}
	}
	now := b.get("/dashboard/series?minutes=15")
	now.shows(t, http.StatusOK, `"requests":[`)
	cut()
	old := b.get("/dashboard/series?minutes=15")
	old.shows(t, http.StatusOK, `,"old":`)
	if same, _, _ := strings.Cut(old.text, `,"old":`); same+"}\n" != now.text {
		t.Errorf("the charts have %s, and had %s", old.text, now.text)
	}
	b.get("/dashboard/series?minutes=60").shows(t, http.StatusServiceUnavailable, "statistics cannot be read: redis is away")
	b.get("/").shows(t, http.StatusOK, `<dl class="tiles old">`, ">1\u202f241<", "Last known at", `<strong class="dim-text">node-b</strong>`)
	b.get("/dashboard/routes").shows(t, http.StatusOK, `class="routes stack old"`, ">230<", "Last known at")
	b.get("/dashboard/nodes").shows(t, http.StatusOK, `<tr><th scope="row">node-a <span class="tag dim">this node</span>`, `<tr class="old"><th scope="row">node-b`, "Last known at")
	for _, path := range []string{"/", "/dashboard/routes", "/dashboard/nodes", "/dashboard/keys", "/dashboard/explain", "/dashboard/config", "/dashboard/nothing"} {
		p := b.get(path)
		if n := strings.Count(p.text, storeBanner); n != 1 {
			t.Errorf("%s: got %d banners about the store; want 1", path, n)
		}
		if n := strings.Count(p.text, `role="alert"`) - strings.Count(p.text, `role="alert" hidden`); n != 1 && path != "/dashboard/nothing" {
			t.Errorf("%s: got %d alerts; want one", path, n)
		}
	}
}

// A page that was opened before has the banner with its next numbers.
func TestDashboard_TheBannerComesWithTheNumbers(t *testing.T) {
	o, cut := outage()
	b := open(t, o)
	live := func() page {
		r, err := http.NewRequest(http.MethodGet, b.at+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("HX-Request", "true")
		return b.send(r)
	}
	live().shows(t, http.StatusOK, `<div id="store" hx-swap-oob="true"></div>`)
	cut()
	live().shows(t, http.StatusOK, `<div id="store" hx-swap-oob="true"><p class="banner bad"`, storeBanner)
}

// A node always knows of itself.
func TestDashboard_ThisNodeIsAlwaysListed(t *testing.T) {
	o, cut := outage()
	cut()
	open(t, o).get("/dashboard/nodes").shows(t, http.StatusOK, `node-a <span class="tag dim">this node</span>`)
}

// Only what is wrong is red: a refusal is what limits are for.
func TestDashboard_RefusalsAreNotRed(t *testing.T) {
	b := open(t, options())
	for _, path := range []string{"/", "/dashboard/routes"} {
		if p := b.get(path); strings.Contains(p.text, "bad-text") || strings.Contains(p.text, `class="bad"`) {
			t.Errorf("%s has something red in\n%s", path, p.text)
		}
	}
}
