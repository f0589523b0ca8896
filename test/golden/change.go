package golden

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

// changed is the configuration of the file with the built-in upstream in the place of all others, and up to three changes.
func changed(tb testing.TB, r *rand.Rand, file string) []byte {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		tb.Fatal(err)
	}
	var places []*yaml.Node // mappings with more than one field, and rates
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode && len(n.Content) > 2 || n.Kind == yaml.ScalarNode && rate.MatchString(n.Value) {
			places = append(places, n)
		}
		for i, child := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "upstreams" {
				for j := 1; j < len(child.Content); j += 2 {
					child.Content[j] = &yaml.Node{Kind: yaml.ScalarNode, Value: "echo"}
				}
			} else if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "upstream" && strings.Contains(child.Value, "://") {
				child.Value = "echo"
			}
			walk(child)
		}
	}
	walk(&root)
	for range min(r.IntN(4), len(places)) {
		n := places[r.IntN(len(places))]
		if n.Kind == yaml.ScalarNode {
			n.Value = fmt.Sprintf("%d%s", 1+r.IntN(4), n.Value[strings.Index(n.Value, "/"):])
		} else if len(n.Content) > 2 {
			at := r.IntN(len(n.Content)/2) * 2
			if !needed.MatchString(n.Content[at].Value) || r.IntN(10) == 0 {
				n.Content = append(n.Content[:at:at], n.Content[at+2:]...)
			}
		}
	}
	out, err := yaml.Marshal(&root)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// needed are fields without which a configuration is refused, and rate is how often something may happen.
var needed = regexp.MustCompile(`^(routes|match|path|upstream|key|rates?|from|keys|limits|name)$`)
var rate = regexp.MustCompile(`^\d+/\d*[smhd]$`)

// An asker makes requests that the routes of a configuration match, more often than not.
type asker struct {
	r       *rand.Rand
	routes  []*config.Route
	sources [][2]string // what keys and other parts of the configuration read: header, X-Phone
}

// source is where a key stands in a request, as a configuration writes it.
var source = regexp.MustCompile(`\b(header|query|cookie|json|form):(/?[A-Za-z][\w./-]*)`)

func newAsker(r *rand.Rand, c *config.Config, text string) *asker {
	a := &asker{r: r, routes: c.Routes}
	known := map[string]bool{}
	for _, m := range source.FindAllStringSubmatch(text, -1) {
		if !known[m[0]] {
			a.sources = append(a.sources, [2]string{m[1], m[2]})
		}
		known[m[0]] = true
	}
	return a
}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// value is a value of what has that name: few, so that limits are reached, and seldom a bad one.
func (a *asker) value(name string) string {
	if number.MatchString(name) {
		return one(a.r, "1", "2", "3")
	}
	return one(a.r, "+8613800138000", "+86 138 0013 8000", "+8613800138001", "+8613800138000", "+4915112345678", "+4915112345679", "+12025550123", "bob", "free")
}

// number is the name of what holds a number.
var number = regexp.MustCompile(`(?i)segment|cost|units|count`)

func (a *asker) next() view.ExplainRequest {
	route := a.route()
	asked := view.ExplainRequest{
		Method: one(a.r, append([]string{"GET", "POST", "POST"}, route.Methods...)...), Header: map[string][]string{},
		URL:    "http://" + cmp.Or(strings.ReplaceAll(route.Host, "*", "a"), "localhost") + variable.ReplaceAllString(strings.ReplaceAll(route.Path, "*", "x/y"), "v"),
		Client: netip.MustParseAddr(one(a.r, "192.0.2.1", "192.0.2.2", "198.51.100.7", "10.0.0.1", "2001:db8::1")),
	}
	for name, value := range route.Headers {
		asked.Header[name] = []string{strings.ReplaceAll(value, "*", "any")}
	}
	var query, form, cookies []string
	object := map[string]string{}
	for _, s := range a.sources {
		if a.r.IntN(6) == 0 {
			continue
		}
		switch v := a.value(s[1]); s[0] {
		case "header":
			asked.Header[s[1]] = []string{v}
		case "query":
			query = append(query, s[1]+"="+escaped(v))
		case "cookie":
			cookies = append(cookies, s[1]+"="+strings.ReplaceAll(v, " ", ""))
		case "form":
			form = append(form, s[1]+"="+escaped(v))
		case "json":
			object[strings.Trim(s[1], "/")] = v
		}
	}
	if len(query) > 0 {
		asked.URL += "?" + strings.Join(query, "&")
	}
	if len(cookies) > 0 {
		asked.Header["Cookie"] = []string{strings.Join(cookies, "; ")}
	}
	switch {
	case asked.Method == "GET":
	case len(object) > 0 && (len(form) == 0 || a.r.IntN(2) == 0):
		asked.Header["Content-Type"], asked.Body = []string{"application/json"}, nested(object)
	case len(form) > 0:
		asked.Header["Content-Type"], asked.Body = []string{"application/x-www-form-urlencoded"}, strings.Join(form, "&")
	}
	return asked
}

func escaped(v string) string { return strings.NewReplacer("+", "%2B", " ", "%20").Replace(v) }

// nested is a JSON object with a value at each of the paths, in an order that is always the same.
func nested(values map[string]string) string {
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		head, rest, deeper := strings.Cut(name, "/")
		text := fmt.Sprintf("%q", values[name])
		if deeper {
			text = nested(map[string]string{rest: values[name]})
		}
		fields = append(fields, fmt.Sprintf("%q:%s", head, text))
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// route is what one of the routes matches, or what none does.
func (a *asker) route() config.Match {
	if len(a.routes) == 0 || a.r.IntN(12) == 0 {
		return config.Match{Path: one(a.r, "/", "/nothing", "/a//b", "/%41")}
	}
	return a.routes[a.r.IntN(len(a.routes))].Match
}

// variable is a part of a path that may be anything.
var variable = regexp.MustCompile(`\{[^}]*\}`)
