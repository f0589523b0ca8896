package dashboard_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
)

// manyRoutes are 500 routes of two limits each.
func manyRoutes() admin.Options {
	o := options()
	var routes view.Routes
	var limits view.Limits
	m := view.Minute{At: time.Now().UTC().Truncate(time.Minute)}
	for i := range 500 {
		name := fmt.Sprint("route-", i)
		routes.Routes = append(routes.Routes, view.Route{Name: name, Path: "/v1/" + name})
		r := view.RouteMinute{Route: name, Requests: int64(i), Allowed: int64(i)}
		for _, l := range []string{"phone", "address"} {
			limits.Limits = append(limits.Limits, view.Limit{Route: name, Name: l, Key: l, Rates: []string{"5/1h", "10/24h"}, Mode: "enforce"})
			r.Limits = append(r.Limits, view.LimitMinute{Limit: l, Allowed: int64(i)})
		}
		m.Routes = append(m.Routes, r)
	}
	o.Routes = func(context.Context) (view.Routes, error) { return routes, nil }
	o.Limits = func(context.Context) (view.Limits, error) { return limits, nil }
	o.Statistics = func(context.Context, int) (view.Statistics, error) {
		return view.Statistics{Minutes: []view.Minute{m}}, nil
	}
	return o
}

var (
	element = regexp.MustCompile(`<[a-z]`)
	routeOf = regexp.MustCompile(`rowgroup">(route-\d+)<`)
)

// routesOn returns the routes on a page.
func (p page) routesOn() (all []string) {
	for _, m := range routeOf.FindAllStringSubmatch(p.text, -1) {
		all = append(all, m[1])
	}
	return all
}

func TestRoutes_APageIsBounded(t *testing.T) {
	b := open(t, manyRoutes())
	p := b.get("/dashboard/routes")
	p.shows(t, http.StatusOK, "500 routes", "page 1 of 20", `href="/dashboard/routes?page=2"`)
	if n, bytes := len(element.FindAllString(p.text, -1)), len(p.text); n > 3000 || bytes > 150<<10 {
		t.Errorf("the page has %d elements in %d bytes; want at most 3000 in 150 KiB", n, bytes)
	}
	seen := map[string]bool{}
	for i := range 20 {
		for _, name := range b.get(fmt.Sprint("/dashboard/routes?page=", i+1)).routesOn() {
			seen[name] = true
		}
	}
	if len(seen) != 500 {
		t.Errorf("all pages together have %d routes; want 500", len(seen))
	}
	if got := b.get("/dashboard/routes?page=99").routesOn(); len(got) == 0 || got[len(got)-1] != "route-499" {
		t.Errorf("beyond the last page are %q; want the last page", got)
	}
}

func TestRoutes_AreFilteredAndOrdered(t *testing.T) {
	b := open(t, manyRoutes())
	p := b.get("/dashboard/routes?q=ROUTE-49&sort=requests")
	p.shows(t, http.StatusOK, "11 routes", `hx-get="/dashboard/routes?q=ROUTE-49&amp;sort=requests"`, `<option value="requests" selected>`)
	if got := p.routesOn(); len(got) != 11 || got[0] != "route-499" || got[10] != "route-49" {
		t.Errorf("got %q; want the routes with 49, that with most requests first", got)
	}
	if got := b.get("/dashboard/routes?sort=name").routesOn(); got[1] != "route-1" || got[2] != "route-10" {
		t.Errorf("by name come %q", got)
	}
	b.get("/dashboard/routes?q=nothing-like-that").shows(t, http.StatusOK, "No route, limit or key is like that")
}

// Pages, styles and answers of the API are compressed; events are not.
func TestDashboard_IsCompressed(t *testing.T) {
	b := open(t, manyRoutes())
	for path, most := range map[string]int{"/dashboard/routes": 12 << 10, "/dashboard/static/weir.css": 6 << 10, "/dashboard/static/weir.js": 6 << 10, "/api/v1/limits": 12 << 10, "/": 4 << 10} {
		r, err := http.NewRequest(http.MethodGet, b.at+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", "gzip") // read as it is, and not by the client
		p := b.send(r)
		if p.Header.Get("Content-Encoding") != "gzip" || p.Header.Get("Vary") == "" || len(p.text) > most {
			t.Errorf("%s: %q of %d bytes, Vary %q; want gzip of at most %d", path, p.Header.Get("Content-Encoding"), len(p.text), p.Header.Get("Vary"), most)
			continue
		}
		unpacked, err := gzip.NewReader(strings.NewReader(p.text))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(unpacked); err != nil || len(text) < len(p.text) {
			t.Errorf("%s: unpacked it has %d bytes, %v", path, len(text), err)
		}
	}
}

// Monitors that ask with HEAD see the status that GET has.
func TestDashboard_AnswersHEAD(t *testing.T) {
	b := open(t, options())
	for path, want := range map[string]int{"/": 200, "/healthz": 200, "/readyz": 200, "/dashboard/routes": 200, "/dashboard/nothing": 404, "/api/v1/nodes": 200, "/api/v1/nothing": 404} {
		r, err := http.NewRequest(http.MethodHead, b.at+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if p := b.send(r); p.StatusCode != want || p.text != "" {
			t.Errorf("HEAD %s: got %d and %q, want %d and nothing", path, p.StatusCode, p.text, want)
		}
	}
}
