package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/admin"
)

// nodeTable lists the live nodes: the leader, configuration drift, and whether each has
// sent its statistics; then the lost ones.
func (d topData) nodeTable() topTable {
	t := topTable{columns: []string{"NODE", "STATE", "LEADS", "GENERATION", "CONFIG", "ADDRESS", "VERSION", "UP"}, empty: "no node is known"}
	for _, m := range d.Nodes.Nodes {
		state := "ok"
		if m.Drift {
			state = "serves another config, from " + m.Source
		}
		state = cmp.Or(m.Problem, state)
		if said, asked := d.replyOf(m.ID); asked && said != "ok" {
			state = cmp.Or(said, "no answer")
		}
		leads := ""
		if m.ID == d.Leader.Node {
			leads = "leads"
		}
		hash := m.Hash[:min(len(m.Hash), 8)]
		t.rows = append(t.rows, topRow{id: m.ID, bad: state != "ok", cells: []string{m.ID, printable(state), leads, fmt.Sprint(m.Generation), hash, m.Address, m.Version, ago(m.Started, d.At)}})
	}
	for _, m := range d.Nodes.Lost {
		t.rows = append(t.rows, topRow{id: m.ID, bad: true, cells: []string{m.ID, "lost " + ago(m.Seen, d.At) + " ago", "", fmt.Sprint(m.Generation), m.Hash[:min(len(m.Hash), 8)], m.Address, m.Version, "-"}})
	}
	for _, n := range d.Top.Nodes {
		known := slices.ContainsFunc(d.Nodes.Nodes, func(m admin.Member) bool { return m.ID == n.Node })
		if !known {
			t.rows = append(t.rows, topRow{id: n.Node, bad: n.Said != "ok", cells: []string{n.Node, printable(cmp.Or(n.Said, "no answer")), "", "-", "-", "-", "-", "-"}})
		}
	}
	return t
}

// replyOf returns the reply of a node to the last query.
func (d topData) replyOf(id string) (said string, asked bool) {
	i := slices.IndexFunc(d.Top.Nodes, func(n admin.NodeAnswer) bool { return n.Node == id })
	if i < 0 {
		return "", false
	}
	return d.Top.Nodes[i].Said, true
}

// upstreamTable lists the targets of all upstreams.
func (d topData) upstreamTable() topTable {
	t := topTable{columns: []string{"UPSTREAM", "TARGET", "STATE", "HEALTHY ON", "ERRORS", "REQUESTS", "IN FLIGHT", "WAITING"}, empty: "no route forwards to an upstream"}
	for _, u := range d.Upstreams.Upstreams {
		for _, target := range u.Targets {
			healthy := 0
			for _, n := range target.Nodes {
				if n.State == "healthy" || n.State == "slow_start" {
					healthy++
				}
			}
			t.rows = append(t.rows, topRow{
				id: u.Name + " " + target.Target, bad: healthy < len(target.Nodes),
				cells: []string{
					u.Name, target.Target, strings.ReplaceAll(target.State, "_", " "), fmt.Sprintf("%d of %d", healthy, len(target.Nodes)),
					fmt.Sprint(target.Errors), fmt.Sprint(target.Requests), fmt.Sprint(target.InFlight), fmt.Sprint(u.Waiting),
				},
			})
		}
	}
	return t
}

// summary returns the overall state in one line.
func (d topData) summary() string {
	if d.Away != "" {
		return printable("redis unreachable: only what this node has seen (" + d.Away + ")")
	}
	silent := 0
	for _, n := range d.Top.Nodes {
		if n.Said != "ok" {
			silent++
		}
	}
	var requests, refused int64
	for _, r := range d.Statistic.Last.Routes {
		requests += r.Requests
		refused += r.Refused
	}
	parts := []string{plural(len(d.Nodes.Nodes), "node")}
	switch {
	case d.Leader.Node == "":
		parts = append(parts, "no leader")
	case len(d.Nodes.Nodes) > 1:
		parts = append(parts, d.Leader.Node+" leads")
	}
	if drift := d.drift(); drift != "" {
		parts = append(parts, drift)
	} else if len(d.Nodes.Nodes) > 1 {
		parts = append(parts, "all serve one config")
	}
	if n := len(d.Nodes.Lost); n > 0 {
		parts = append(parts, fmt.Sprintf("%d lost, the last %s %s ago", n, d.Nodes.Lost[0].ID, ago(d.Nodes.Lost[0].Seen, d.At)))
	}
	if silent > 0 {
		parts = append(parts, fmt.Sprintf("%d did not answer", silent))
	}
	return strings.Join(append(parts, fmt.Sprintf("last 60 s: %d requests, %d refused", requests, refused)), "; ")
}

// drift says which nodes serve another configuration than most do, and where they have it from; empty if none does.
func (d topData) drift() string {
	var odd []string
	for i, g := range d.Nodes.Configurations {
		if i > 0 {
			odd = append(odd, fmt.Sprintf("%s (generation %d from %s)", strings.Join(g.Nodes, ", "), g.Generation, g.Source))
		}
	}
	if odd == nil {
		return ""
	}
	most := d.Nodes.Configurations[0]
	return fmt.Sprintf("%d of %d serve generation %d, not %s", len(most.Nodes), len(d.Nodes.Nodes), most.Generation, strings.Join(odd, ", "))
}
