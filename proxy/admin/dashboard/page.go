package dashboard

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
)

//go:embed templates
var templateFiles embed.FS

// pages are the templates by file name without extension. Each has a block "main"; pages with live
// updates have a block "live" in it.
type pages map[string]*template.Template

func parsePages() pages {
	all := pages{}
	layout := template.Must(template.New("layout.html").Funcs(templateFuncs()).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for _, file := range names {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "templates/"), ".html")
		if name != "layout" && name != "parts" {
			all[name] = template.Must(template.Must(layout.Clone()).ParseFS(templateFiles, file))
		}
	}
	return all
}

// A view is a page to render.
type view struct {
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
	Form  string // token of forms
	// Events reports whether this node publishes events.
	Events bool
	// Store is why the shared store is unreachable; empty if it is not.
	Store string
	// Maintenance is what is under maintenance; empty if nothing is.
	Maintenance string
	Data        any
}

// Has reports whether there is a page of that name.
func (p pageData) Has(name string) bool {
	return slices.ContainsFunc(p.Nav, func(l link) bool { return l.Path == "/dashboard/"+name })
}

// A link is a link to a page.
type link struct {
	Path, Name string
	Current    bool
}

// nav returns the links to all pages, in the order in which an incident is investigated.
func (d *dashboard) nav(path string) []link {
	all := []link{{Path: "/", Name: "Overview"}, {Path: "/dashboard/routes", Name: "Routes & limits"}, {Path: "/dashboard/keys", Name: "Keys"}}
	if d.Top != nil {
		all = append(all, link{Path: "/dashboard/top", Name: "Top keys"})
	}
	if d.Conversion != nil {
		all = append(all, link{Path: "/dashboard/conversion", Name: "Conversion"})
	}
	if d.Decisions != nil {
		all = append(all, link{Path: "/dashboard/decisions", Name: "Decisions"})
	}
	all = append(all, link{Path: "/dashboard/explain", Name: "Explain"})
	if d.Simulate != nil {
		all = append(all, link{Path: "/dashboard/simulate", Name: "Simulate"})
	}
	if d.Upstreams != nil {
		all = append(all, link{Path: "/dashboard/upstreams", Name: "Upstreams"})
	}
	all = append(all, link{Path: "/dashboard/nodes", Name: "Nodes"}, link{Path: "/dashboard/config", Name: "Config"})
	if d.Audit != nil {
		all = append(all, link{Path: "/dashboard/audit", Name: "Audit"})
	}
	for i := range all {
		all[i].Current = all[i].Path == path || all[i].Path != "/" && strings.HasPrefix(path, all[i].Path+"/")
	}
	return all
}

// page returns a handler that renders the result of show, and requires a session.
func (d *dashboard) page(show func(r *http.Request) view) http.HandlerFunc {
	return d.protect(func(w http.ResponseWriter, r *http.Request) { d.show(w, r, show(r)) })
}

// show renders a page, or only its live part if a script requests that.
func (d *dashboard) show(w http.ResponseWriter, r *http.Request, v view) {
	if v.redirect != "" {
		http.Redirect(w, r, v.redirect, http.StatusSeeOther)
		return
	}
	who := sessionOf(r)
	t, part := d.pages()[v.name], "layout.html"
	if r.Header.Get("HX-Request") != "" && t.Lookup("live") != nil {
		part = "live"
	}
	data := pageData{Title: v.title, Path: r.URL.Path, Nav: d.nav(r.URL.Path), Who: who, Form: d.sessions.formToken(who.id), Events: d.Events != nil, Data: v.data}
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
		return said
	}
	return ""
}

func (d *dashboard) notFound(w http.ResponseWriter, r *http.Request) {
	d.protect(func(w http.ResponseWriter, r *http.Request) { d.show(w, r, d.notFoundView(r)) })(w, r)
}

func (d *dashboard) notFoundView(r *http.Request) view {
	return view{name: "problem", title: "No such page", status: http.StatusNotFound, data: "there is no page " + r.URL.Path}
}

// A fault is why a part of a page is missing; empty if it is not.
type fault string

// faultOf returns err as the API would report it.
func faultOf(what string, err error) fault {
	if err == nil {
		return ""
	}
	var known *admin.Problem
	if errors.As(err, &known) {
		lines := known.Problems
		if len(lines) == 0 {
			lines = []string{known.Detail}
		}
		for _, n := range known.Nodes {
			if n.Said != "ok" {
				lines = append(lines, fmt.Sprintf("%s: %s", n.Node, n.Said))
			}
		}
		return fault(what + ": " + strings.Join(lines, "; "))
	}
	return fault(what + ": " + proxy.ErrorText(err))
}

// denied is the page for operators whose role is read.
func denied(what string) view {
	return view{name: "problem", title: "Not allowed", status: http.StatusForbidden, data: "your token may look, and not " + what + "; log in with one of role write"}
}
