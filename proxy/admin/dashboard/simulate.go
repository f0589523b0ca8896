package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
)

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
	if r.URL.Query().Get("other") != "" {
		c, err := d.Config(r.Context())
		v.Fault = faultOf("the configuration cannot be read", err)
		v.Other = editable(c.Effective)
	}
	return v.view(0)
}

func (d *dashboard) simulateView(form url.Values) simulateView {
	return simulateView{
		MaxLog: admin.MaxLog, AccessLog: d.AccessLog, Own: form.Get("own_log") == "true",
		Other: form.Get("other"), Host: form.Get("host"), Fields: form.Get("fields"),
	}
}

func (v simulateView) view(status int) page {
	return page{name: "simulate", title: "Simulate", status: status, data: v}
}

// editable returns an effective configuration without the sections of the machine, which a
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
	return b.String()
}

// simulate replays an uploaded log. The form is read as a stream: first the parts before the log,
// including the token. The token has another name than in other forms, because htmx confuses an
// input named form with its form and sends it last.
func (d *dashboard) simulate(w http.ResponseWriter, r *http.Request) {
	u, err := admin.ReadUpload(w, r)
	v := d.simulateView(u.Values)
	defer u.Close()
	switch {
	case err != nil:
	case !d.validFormToken(u.Values.Get("session"), sessionOf(r).id):
		err = &admin.Problem{Status: http.StatusForbidden, Detail: forgedFormDetail}
	default:
		u.Values["field"] = linesOf(v.Fields)
		var said admin.Simulation
		if said, err = d.Replay(r.Context(), u, "session", "fields", "form", "served"); err == nil {
			v.tell(said)
		}
	}
	v.Fault = faultOf("this cannot be simulated", err)
	shown := v.view(statusOf(err))
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
	at := map[string]int{}
	for _, side := range v.Sides {
		for _, rt := range side.Routes {
			for _, l := range rt.Limits {
				if len(l.Top) == 0 {
					continue
				}
				name := view.LimitName(rt.Name, l.Name)
				i, known := at[name]
				if !known {
					i = len(v.Tops)
					at[name] = i
					v.Tops = append(v.Tops, simulatedTop{Route: rt.Name, Limit: l.Name})
				}
				v.Tops[i].Keys = append(v.Tops[i].Keys, simulatedKeys{side.Name, l})
			}
		}
	}
}
