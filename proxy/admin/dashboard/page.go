package dashboard

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"io/fs"
	"math"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
)

//go:embed templates
var templateFiles embed.FS

// pages are the templates by file name without extension. Each has a block "main"; pages with live
// updates have a block "live" in it.
type pages map[string]*template.Template

func parsePages() pages {
	all := pages{}
	layout := template.Must(template.New("layout.html").Funcs(templateFuncs()).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	names, _ := fs.Glob(templateFiles, "templates/*.html") // the pattern is valid
	for _, file := range names {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "templates/"), ".html")
		if name != "layout" && name != "parts" {
			all[name] = template.Must(template.Must(layout.Clone()).ParseFS(templateFiles, file))
		}
	}
	return all
}

// A page is what a handler shows.
type page struct {
	name   string // of the template
	title  string
	status int // 0 means 200
	data   any
	// redirect is the address of the page to load instead, after a form.
	redirect string
}

// A pageData is the data passed to templates.
type pageData struct {
	Title string
	Path  string
	Nav   []link
	Who   session
	At    time.Time // of what is shown
	// Store is why the shared store is unreachable; empty if it is not.
	Store string
	// Maintenance is what is under maintenance; empty if nothing is.
	Maintenance string
	Data        any
}

// A link is a link to a page.
type link struct {
	Path, Name string
	Current    bool
}

// nav returns the links to all pages, in the order in which an incident is investigated.
func nav(path string) []link {
	all := []link{
		{Path: "/", Name: "Overview"}, {Path: "/dashboard/routes", Name: "Routes & limits"}, {Path: "/dashboard/keys", Name: "Keys"},
		{Path: "/dashboard/top", Name: "Top keys"}, {Path: "/dashboard/conversion", Name: "Conversion"},
		{Path: "/dashboard/decisions", Name: "Decisions"}, {Path: "/dashboard/explain", Name: "Explain"},
		{Path: "/dashboard/simulate", Name: "Simulate"}, {Path: "/dashboard/upstreams", Name: "Upstreams"},
		{Path: "/dashboard/nodes", Name: "Nodes"}, {Path: "/dashboard/config", Name: "Config"}, {Path: "/dashboard/audit", Name: "Audit"},
	}
	for i := range all {
		all[i].Current = all[i].Path == path || all[i].Path != "/" && strings.HasPrefix(path, all[i].Path+"/")
	}
	return all
}

// page returns a handler that renders the result of show, and requires a session.
func (d *dashboard) page(show func(r *http.Request) page) http.HandlerFunc {
	return d.protect(func(w http.ResponseWriter, r *http.Request) { d.show(w, r, show(r)) })
}

// show renders a page, or only its live part if a script requests that.
func (d *dashboard) show(w http.ResponseWriter, r *http.Request, v page) {
	if v.redirect != "" {
		http.Redirect(w, r, v.redirect, http.StatusSeeOther)
		return
	}
	who := sessionOf(r)
	t, part := d.pages()[v.name], "layout.html"
	if r.Header.Get("HX-Request") != "" && t.Lookup("live") != nil {
		part = "live"
	}
	data := pageData{Title: v.title, Path: r.URL.Path, Nav: nav(r.URL.Path), Who: who, At: time.Now(), Data: v.data}
	if who.Name != "" {
		data.Store = d.storeFault(r.Context())
		m, _ := d.Maintenance(r.Context()) // the page of routes says why it is not known
		data.Maintenance = maintenanceText(m.On)
	}
	var b bytes.Buffer
	err := t.ExecuteTemplate(&b, part, data)
	if part == "live" && err == nil {
		err = t.ExecuteTemplate(&b, "banners-live", data)
	}
	if err != nil {
		http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if v.status != 0 {
		w.WriteHeader(v.status)
	}
	w.Write(b.Bytes())
}

// storeFault returns why the shared store is unreachable; empty if it is not.
func (d *dashboard) storeFault(ctx context.Context) string {
	if said := d.Ready(ctx).Checks["store"]; said != "ok" {
		return causeOf(said)
	}
	return ""
}

func noPage(r *http.Request) page {
	return page{name: "problem", title: "No such page", status: http.StatusNotFound, data: "there is no page " + r.URL.Path}
}

// A fault is why a part of a page is missing; empty if it is not.
type fault string

// unreachable matches what the program says of a store that cannot be reached.
var unreachable = regexp.MustCompile(`(?:redis is unreachable|limiter store unavailable): (?:redis circuit breaker open: )?(?:dial tcp \S+: )?([^\n]*)`)

// causeOf returns what an operator can do something about: not what the program did when it met that.
func causeOf(said string) string {
	if m := unreachable.FindStringSubmatch(said); m != nil {
		return "redis is unreachable: " + m[1]
	}
	return strings.TrimPrefix(said, view.ErrKeyQuery.Error()+": ")
}

// What says what failed.
func (f fault) What() string {
	what, _, _ := strings.Cut(string(f), ": ")
	return sentence(what)
}

// Cause says why it failed; empty if What says all.
func (f fault) Cause() string {
	_, cause, _ := strings.Cut(string(f), ": ")
	return cause
}

// faultOf returns err as the API would report it.
func faultOf(what string, err error) fault {
	if err == nil {
		return ""
	}
	if known, ok := errors.AsType[*admin.Problem](err); ok {
		lines := known.Problems
		if len(lines) == 0 {
			lines = []string{known.Detail}
		}
		lines = slices.Concat(lines, view.Each(view.NotOK(known.Nodes), view.NodeAnswer.String))
		return fault(what + ": " + onPage(strings.Join(lines, "; ")))
	}
	return fault(what + ": " + onPage(causeOf(proxy.ErrorText(err))))
}

// statusOf returns the status of a page that says why what a form asks for was not done; 0 if it was.
func statusOf(err error) int {
	if known, ok := errors.AsType[*admin.Problem](err); ok && known.Status != 0 {
		return known.Status
	}
	if err == nil {
		return 0
	}
	return http.StatusUnprocessableEntity
}

// denied is the page for operators whose role is read.
func denied(what string) page {
	return page{name: "problem", title: "Not allowed", status: http.StatusForbidden, data: "your token may look, and not " + what + "; log in with one of role write"}
}

// templateFuncs returns the functions with which templates format numbers and times.
func templateFuncs() template.FuncMap {
	return template.FuncMap{
		"clock":   clock,
		"stamp":   stamp,
		"timed":   timed,
		"machine": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"count":   func(n any) string { return view.Count(reflect.Indirect(reflect.ValueOf(n)).Int()) },
		"rate":    formatRate,
		"cell":    formatCell,
		"known":   func(n, unknown int64) string { return view.AtLeast(n, unknown, view.Count) },
		"minus":   func(a, b int64) int64 { return a - b },
		"many":    func(n any, word string) string { return view.Plural(view.Count(reflect.ValueOf(n).Int()), word) },
		"seconds": view.Duration,
		"between": func(from, to time.Time) string { return view.Duration(to.Sub(from)) },
		"moment":  view.Moment,
		"signed":  func(a, b int64) string { return view.Change(a, b, view.Count) },
		"after":   func(seconds []string) string { d, _ := time.ParseDuration(seconds[0] + "s"); return view.Duration(d) },
		"took":    func(ms float64) string { return strconv.FormatFloat(max(ms, 0.1), 'f', 1, 64) + " ms" },
		"short":   short,
		"among":   func(one string, all []string) bool { return slices.Contains(all, one) },
		"share":   func(part, whole int64) string { return strings.Replace(view.Share(part, whole), " ", "\u00a0", 1) },
		"spark":   spark,
		"yaml":    colored,
		"wait": func(ms any) string {
			return view.Duration(time.Duration(reflect.ValueOf(ms).Convert(reflect.TypeFor[float64]()).Float() * float64(time.Millisecond)))
		},
		"actions": actions,
		"until":   untilText,
		"silent":  view.NotOK,
		"told":    repliedNodes,
		"whole":   sentence,
		"onpage":  onPage,
		"cause":   causeOf,
		"why":     func(fault string) string { return strings.TrimPrefix(fault, "redis is unreachable: ") },
		"spaced":  func(s string) string { return strings.ReplaceAll(s, "_", " ") },
		"limit":   view.LimitName,
		"join":    func(all []string) string { return strings.Join(all, ", ") },
		"beside":  func(root pageData, one any) scoped { return scoped{root, one} },
	}
}

// sentence returns text as a sentence of its own.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// commands matches advice for the command line, and for who sends the parts of a form.
var commands = regexp.MustCompile(`; weir [a-z ]+ lists [^;]*|, which is sent as the last part, log|` +
	`, or run weir simulate on the command line(, which takes any length)?`)

// long matches a number that is read in groups of three digits, and with what stands beside it other numbers: fractions,
// years, and parts of addresses and masked keys.
var long = regexp.MustCompile(`[-.:*+/="]?\b\d{4,18}\b[-:]?`)

// onPage returns text with numbers as view.Count writes them, the fields of the page in place of flags, and no commands.
func onPage(text string) string {
	text = long.ReplaceAllStringFunc(text, func(digits string) string {
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil {
			return digits
		}
		return view.Count(int64(n))
	})
	return strings.NewReplacer("with --field ", "in Names of fields: ", "set --host NAME", "write it into Host of its requests").Replace(commands.ReplaceAllString(text, ""))
}

// A scoped is an item with the page that contains it.
type scoped struct {
	Page pageData
	One  any
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// written matches the times that sentences have: with a date, or of the day of the sentence.
var written = regexp.MustCompile(`(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d UTC`)

// timed returns a sentence of the given time with its times as elements, beside which the script shows the time
// of the reader. Without at, times of the day stay as they are.
func timed(text string, at ...time.Time) template.HTML {
	var html strings.Builder
	end := 0
	for _, m := range written.FindAllStringIndex(text, -1) {
		found := text[m[0]:m[1]]
		dated := found
		if len(at) > 0 && len(found) == len("15:04:05 UTC") {
			dated = at[0].UTC().Format(time.DateOnly) + " " + found
		}
		if t, err := time.Parse("2006-01-02 15:04:05 UTC", dated); err == nil {
			html.WriteString(template.HTMLEscapeString(text[end:m[0]]) + `<time datetime="` + t.Format(time.RFC3339) + `">` + found + "</time>")
			end = m[1]
		}
	}
	return template.HTML(html.String() + template.HTMLEscapeString(text[end:])) // #nosec G203 -- every part is escaped, or a time
}

// formatRate returns a rate with one decimal place, and digit grouping as view.Count.
func formatRate(n float64) string {
	tenths := int64(math.Round(n * 10))
	return view.Count(tenths/10) + "." + strconv.FormatInt(tenths%10, 10)
}

// formatCell returns n, or – if it is not known.
func formatCell(known any, n int64) string {
	if truth, _ := template.IsTrue(known); !truth {
		return "–"
	}
	return view.Count(n)
}

// yamlKey matches a key of YAML, escaped, where a line or a flow mapping begins with it.
var yamlKey = regexp.MustCompile(`(?m)(^[ -]*|[{,] ?)([\w.*-]+|&#34;[^\n]*?&#34;):( |$)`)

// colored returns a configuration with its keys as elements.
func colored(text string) template.HTML {
	return template.HTML(yamlKey.ReplaceAllString(template.HTMLEscapeString(text), `$1<b>$2</b>:$3`)) // #nosec G203 -- it is escaped
}

// short returns the beginning of a hash.
func short(hash string) string { return hash[:min(len(hash), 12)] }
