package dashboard

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
)

// A configView is the data of the page with the configuration and its history.
type configView struct {
	Config  view.Config
	Fault   fault
	Cluster bool // pushes are possible
	History []view.Entry
	// Diff is the change of the selected generation; nil if none is selected.
	Diff         *admin.Diff
	Lines        []diffLine
	HistoryFault fault
	configFlash
	Hidden  []string      // the fields for which what is served cannot be copied
	Other   string        // YAML in the form of a push
	Checked *admin.Pushed // what a push of it would do
	Own     bool          // this node has a log to replay
}

// A configFlash is what a push or a rollback has led to. It is shown once.
type configFlash struct {
	Done      *admin.Pushed
	DoneFault fault
	Status    int // with a fault
}

// concealed matches what an effective configuration has in place of a secret, or of the values of a sensitive key.
var concealed = regexp.MustCompile(`\(hidden|, hidden as well\)|hidden\.invalid|# \d+, not shown`)

// hiddenSecrets matches the secrets of privacy there; a configuration without any has those of the node's own file.
var hiddenSecrets = regexp.MustCompile(`(?m)^  (hash|previous)_secret: \(.*\n`)

// hiddenFields returns the paths of fields whose values an effective configuration does not show.
func hiddenFields(effective string) (hidden []string) {
	var path []string
	for line := range strings.Lines(effective) {
		field := strings.TrimLeft(line, " -")
		name, _, _ := strings.Cut(field, ":")
		path = append(path[:min((len(line)-len(field))/2, len(path))], name)
		if concealed.MatchString(line) {
			hidden = append(hidden, strings.Join(path, "."))
		}
	}
	return hidden
}

// A diffLine is a line of a unified diff with its kind: added, removed, place or same.
type diffLine struct{ Kind, Text string }

func (d *dashboard) showConfig(r *http.Request) page {
	var v configView
	if kept, first, _ := flashOf[configFlash](d, r, "done"); first {
		v.configFlash = kept
	}
	return d.configuration(r, v)
}

func (d *dashboard) configuration(r *http.Request, v configView) page {
	ctx := r.Context()
	served, err := d.Config(ctx)
	v.Config, v.Fault, v.Own = served, faultOf("the configuration cannot be read", err), d.AccessLog != ""
	text := editable(v.Config.Effective)
	if v.Hidden = hiddenFields(text); r.URL.Query().Get("other") != "" && v.Hidden == nil {
		v.Other = text
	}
	if v.Cluster = d.Cluster != nil; v.Cluster {
		history, err := d.Cluster.History(ctx)
		v.History, v.HistoryFault = history.History, faultOf("the history cannot be read", err)
		if n, err := strconv.ParseInt(r.URL.Query().Get("diff"), 10, 64); err == nil {
			diff, err := d.Cluster.Diff(ctx, n)
			v.HistoryFault = cmp.Or(v.HistoryFault, faultOf("what was changed cannot be read", err))
			if err == nil {
				v.Diff, v.Lines = &diff, diffLines(diff.Diff)
			}
		}
	}
	return page{name: "config", title: "Config", status: v.Status, data: v}
}

func diffLines(diff string) (lines []diffLine) {
	for line := range strings.Lines(diff) {
		kind := map[byte]string{'+': "added", '-': "removed", ' ': "same"}[line[0]]
		if kind == "" || strings.HasPrefix(line, "+++") || strings.HasPrefix(line, "---") {
			kind = "place"
		}
		lines = append(lines, diffLine{kind, strings.TrimRight(line, "\n")})
	}
	return lines
}

// pushConfig asks all nodes whether they could serve the configuration of the form, or makes them serve it.
func (d *dashboard) pushConfig(r *http.Request) page {
	return d.changeConfig(r, "push a configuration", func() page {
		push := admin.PushFile(r.PostForm.Get("other"), sessionOf(r).Name)
		if r.PostForm.Get("do") == "push" {
			done, err := admin.Pushed{}, d.checkServed(r)
			if err == nil {
				done, err = d.Cluster.Push(r.Context(), push)
			}
			return d.toConfig(r, done, err)
		}
		v := configView{Other: r.PostForm.Get("other")}
		push.DryRun = true
		checked, err := admin.Pushed{}, errors.New("there is no configuration; paste the file to push")
		if v.Other != "" {
			checked, err = d.Cluster.Push(r.Context(), push)
		}
		if err == nil {
			v.Checked = &checked
		}
		v.DoneFault, v.Status = faultOf("it cannot be pushed", err), statusOf(err)
		return d.configuration(r, v)
	})
}

// rollback rolls all nodes back to an earlier generation.
func (d *dashboard) rollback(r *http.Request) page {
	return d.changeConfig(r, "roll back", func() page {
		var done admin.Pushed
		n, err := strconv.ParseInt(r.PostForm.Get("generation"), 10, 64)
		if err != nil || n < 1 {
			err = errors.New("the generation to roll back to is missing")
		} else if err = d.checkServed(r); err == nil {
			done, err = d.Cluster.Rollback(r.Context(), admin.Rollback{Generation: n, Author: sessionOf(r).Name})
		}
		return d.toConfig(r, done, err)
	})
}

// changeConfig returns the result of do, if the operator may do that.
func (d *dashboard) changeConfig(r *http.Request, what string, do func() page) page {
	switch {
	case !sessionOf(r).Write():
		return denied(what)
	case d.Cluster == nil:
		return noPage(r)
	}
	return do()
}

// toConfig redirects to the page of the configuration, which shows what was done, or why not.
func (d *dashboard) toConfig(r *http.Request, done admin.Pushed, err error) page {
	f := configFlash{Done: &done}
	if err != nil {
		f = configFlash{DoneFault: faultOf("nothing was changed", err), Status: statusOf(err)}
	}
	return page{redirect: "/dashboard/config?done=" + d.keep(r, f)}
}

// checkServed returns a Problem if this node serves another generation than when the form was shown.
func (d *dashboard) checkServed(r *http.Request) error {
	seen, err := strconv.ParseInt(r.PostForm.Get("served"), 10, 64)
	if err != nil {
		return nil // the form is of an older version
	}
	now, err := d.Config(r.Context())
	if err != nil || now.Generation == seen {
		return err
	}
	by := fmt.Sprintf("generation %d is served", now.Generation)
	history, _ := d.Cluster.History(r.Context()) // without it, it is not said who pushed that
	for _, e := range history.History {
		if e.Generation == now.Generation {
			by = fmt.Sprintf("%s pushed generation %d at %s", e.Author, e.Generation, stamp(e.At))
		}
	}
	return &admin.Problem{Status: http.StatusConflict, Detail: by + ", after this page was shown; look at what it changed, and repeat what you did"}
}

// A simulateView is the data of the page of simulations.
type simulateView struct {
	MaxLog    int64
	AccessLog string // the access log file of this node; empty if there is none
	Own       bool   // replay that file
	Other     string // YAML
	Host      string
	Fields    string // WHAT=NAME, one per line
	Fault     fault
	// Said is nil before a log was replayed. Sides are the results of one or two configurations.
	Said  *admin.Simulation
	Sides []simulatedSide
	Tops  []simulatedTop
}

// A simulatedSide is the result of one configuration.
type simulatedSide struct {
	Name string
	proxy.ReplayTally
}

// Refuses returns the refusals of a series, extended to the end of the log: a series ends with its
// last refusal.
func (s simulatedSide) Refuses(series proxy.ReplaySeries) []int64 {
	steps := len(series.Refused)
	if s.Step > 0 {
		steps = max(steps, int(s.To.Sub(s.Start)/s.Step)+1)
	}
	return append(series.Refused[:len(series.Refused):len(series.Refused)], make([]int64, steps-len(series.Refused))...)
}

// A simulatedTop has the most refused keys of a limit under each configuration.
type simulatedTop struct {
	Route, Limit string
	Keys         []simulatedKeys
}

// A simulatedKeys has the most refused keys under one configuration.
type simulatedKeys struct {
	Name string
	proxy.LimitTally
}

func (d *dashboard) showSimulateForm(r *http.Request) page {
	v := d.simulateView(nil)
	v.Own = v.AccessLog != ""
	if r.URL.Query().Get("other") != "" {
		c, err := d.Config(r.Context())
		v.Fault = faultOf("the configuration cannot be read", err)
		v.Other = editable(c.Effective)
	}
	return page{name: "simulate", title: "Simulate", data: v}
}

func (d *dashboard) simulateView(form url.Values) simulateView {
	return simulateView{
		MaxLog: admin.MaxLog, AccessLog: d.AccessLog, Own: form.Get("own_log") == "true",
		Other: form.Get("other"), Host: form.Get("host"), Fields: form.Get("fields"),
	}
}

// editable returns an effective configuration without the sections of the machine and the secrets of privacy, which a
// replacement need not repeat.
func editable(effective string) string {
	var b strings.Builder
	keep := true
	for line := range strings.Lines(effective) {
		if section, _, found := strings.Cut(line, ":"); found && line[0] != ' ' && line[0] != '#' {
			keep = !slices.Contains([]string{"listen", "admin", "store", "redis", "reload", "access_log", "traces"}, section)
		}
		if keep {
			b.WriteString(line)
		}
	}
	return hiddenSecrets.ReplaceAllString(b.String(), "")
}

// simulate replays an uploaded log. The form is read as a stream: first the parts before the log.
func (d *dashboard) simulate(w http.ResponseWriter, r *http.Request) {
	u, err := admin.ReadUpload(w, r)
	v := d.simulateView(u.Values)
	defer u.Close()
	if err == nil {
		u.Values["field"] = linesOf(v.Fields)
		var said admin.Simulation
		if said, err = d.Replay(r.Context(), u, "fields", "served"); err == nil {
			v.tell(said)
		}
	}
	v.Fault = faultOf("this cannot be simulated", err)
	shown := page{name: "simulate", title: "Simulate", status: statusOf(err), data: v}
	if r.Header.Get("HX-Request") != "" {
		shown.status = http.StatusOK // htmx does not show responses with other statuses
	}
	d.show(w, r, shown)
}

// linesOf returns the non-empty lines.
func linesOf(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// tell adds the result of a simulation.
func (v *simulateView) tell(said admin.Simulation) {
	v.Said = &said
	v.Sides = []simulatedSide{{"As it is served", said.Result}}
	if said.Against != nil {
		v.Sides = append(v.Sides, simulatedSide{"The other configuration", *said.Against})
	}
	for _, side := range v.Sides {
		for _, rt := range side.Routes {
			for _, l := range rt.Limits {
				if len(l.Top) == 0 {
					continue
				}
				i := slices.IndexFunc(v.Tops, func(t simulatedTop) bool { return t.Route == rt.Name && t.Limit == l.Name })
				if i < 0 {
					i, v.Tops = len(v.Tops), append(v.Tops, simulatedTop{Route: rt.Name, Limit: l.Name})
				}
				v.Tops[i].Keys = append(v.Tops[i].Keys, simulatedKeys{side.Name, l})
			}
		}
	}
}
