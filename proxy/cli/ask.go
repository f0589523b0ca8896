package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

// nodesCommand lists the nodes.
type nodesCommand struct{ answerFlags }

// Run prints the live nodes, the leader, who serves another configuration, and the nodes lost in the last hour. While
// Redis is unreachable, it prints the node that is asked, and why it cannot ask the others.
func (c nodesCommand) Run(ctx context.Context, w Env) error {
	d := topData{At: time.Now()}
	err := fetch(ctx, c.client(), "/nodes", &d.Nodes)()
	if err == nil && !c.JSON {
		err = fetch(ctx, c.client(), "/leader", &d.Leader)()
	}
	if why, is := errors.AsType[*admin.Problem](err); is && why.Status == http.StatusServiceUnavailable && !c.JSON {
		d.Nodes.Nodes = why.Live
		d.Top, err = c.client().TopOf(ctx, view.TopQuery{N: 1})
	}
	if err != nil || c.JSON {
		return printJSON(w, d.Nodes, err)
	}
	err = d.nodeTable().printAll(w.Stdout)
	if drift := d.drift(); drift != "" {
		_, err = fmt.Fprintln(w.Stdout, drift)
	}
	for _, m := range d.Nodes.Nodes {
		if m.CallsBySlot != nil {
			_, err = fmt.Fprintf(w.Stdout, "%s sends a call for each slot to %s: Redis 7.0 takes one for all\n", m.ID, strings.Join(m.CallsBySlot, ", "))
		}
	}
	for _, g := range d.Nodes.Configurations[min(1, len(d.Nodes.Configurations)):] {
		fmt.Fprintf(w.Stdout, "on %s:\n", strings.Join(g.Nodes, ", "))
		for _, line := range g.Differences() {
			_, err = fmt.Fprintf(w.Stdout, "  %s\n", printable(line))
		}
	}
	return err
}

// nodeTable lists the live nodes: the leader, configuration drift, and whether each has
// sent its statistics; then the lost ones.
func (d topData) nodeTable() textTable {
	t := textTable{columns: []string{"NODE", "STATE", "LEADS", "GENERATION", "CONFIG", "ADDRESS", "VERSION", "UP"}, empty: "no node is known"}
	said := map[string]string{}
	for _, n := range d.Top.Nodes {
		said[n.Node] = cmp.Or(n.Said, "no answer")
	}
	add := func(m view.Member, state, leads, up string) {
		t.add(textRow{id: m.ID, bad: state != "ok"}, m.ID, printable(state), leads, m.Generation, fmt.Sprintf("%.8s", m.Hash), m.Address, m.Version, up)
		delete(said, m.ID)
	}
	for _, m := range d.Nodes.Nodes {
		state, leads := cmp.Or(said[m.ID], "ok"), ""
		switch {
		case state != "ok":
		case m.Problem != "":
			state = m.Problem
		case m.Drift:
			state = "serves another config, from " + m.Source
		}
		if m.ID == d.Leader.Node {
			leads = "leads"
		}
		add(m, state, leads, ago(m.Started, d.At))
	}
	for _, m := range d.Nodes.Lost {
		add(m, "lost "+ago(m.Seen, d.At)+" ago", "", "-")
	}
	for _, n := range d.Top.Nodes { // those that only answered, which is all that is known without Redis
		if state, found := said[n.Node]; found {
			t.add(textRow{id: n.Node, bad: state != "ok"}, n.Node, printable(state), "", "-", "-", "-", "-", "-")
		}
	}
	return t
}

// drift says which nodes serve another configuration than most do, and where they have it from; empty if none does.
func (d topData) drift() string {
	if len(d.Nodes.Configurations) < 2 {
		return ""
	}
	odd := view.Each(d.Nodes.Configurations[1:], func(g admin.NodeGroup) string {
		return fmt.Sprintf("%s (generation %d from %s)", strings.Join(g.Nodes, ", "), g.Generation, g.Source)
	})
	most := d.Nodes.Configurations[0]
	return fmt.Sprintf("%d of %d serve generation %d, not %s", len(most.Nodes), len(d.Nodes.Nodes), most.Generation, strings.Join(odd, ", "))
}

// auditCommand lists the actions of operators.
type auditCommand struct {
	Rows   int    `short:"n" default:"50" help:"Print at most N entries, 1 to 500; default: 50." placeholder:"N"`
	Before string `help:"Only entries before the one with this id, which the last line of a page names." placeholder:"ID"`
	answerFlags
}

// Run prints a page of the audit trail, newest first.
func (c auditCommand) Run(ctx context.Context, w Env) error {
	if c.Rows < 1 || c.Rows > admin.MaxAudited {
		return misusef("-n %d: write 1 to %d", c.Rows, admin.MaxAudited)
	}
	page, err := c.client().AuditPage(ctx, view.AuditQuery{Before: c.Before, N: c.Rows})
	if err != nil || c.JSON {
		return printJSON(w, page, err)
	}
	t := textTable{
		columns: []string{"TIME", "WHO", "ACTION", "WHAT", "HASH", "WHERE", "REASON"},
		empty:   "no operator has done anything in the last 30 days" + map[bool]string{true: " before that entry"}[c.Before != ""],
	}
	for _, e := range page.Entries {
		where := "all nodes"
		switch {
		case e.Error != "":
			where, e.Reason = "-", strings.Join(nonEmpty(e.Reason, "failed: "+e.Error), "; ")
		case e.OneNode:
			where = e.Node + " only"
		case len(e.Behind) > 0:
			where = "all but " + strings.Join(e.Behind, ", ")
		}
		switch {
		case e.For != "":
			e.Action += " for " + e.For
		case e.Permits != 0:
			e.Action += fmt.Sprint(" ", e.Permits)
		}
		what := cmp.Or(strings.Join(nonEmpty(e.Masked, e.Detail), ", "), "-")
		t.add(textRow{}, e.At.UTC().Format(time.RFC3339), printable(e.Who), e.Action, printable(what),
			cmp.Or(e.Hash, "-"), where, printable(cmp.Or(e.Reason, "-")))
	}
	if err := t.printAll(w.Stdout); err != nil || page.Next == "" {
		return err
	}
	_, err = fmt.Fprintf(w.Stdout, "there are more: weir audit --before %s\n", page.Next)
	return err
}

// nonEmpty returns texts without the empty ones.
func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// decisionsCommand lists recent decisions.
type decisionsCommand struct {
	Route   string    `help:"Only requests of this route." placeholder:"NAME" names:"routes"`
	Limit   string    `help:"Only requests of which this limit was asked." placeholder:"NAME" names:"limits"`
	Outcome string    `help:"Only requests with this outcome: allowed, refused, shadow_refused, rejected." placeholder:"OUTCOME" enum:",allowed,refused,shadow_refused,rejected" default:""`
	Hash    string    `help:"Only requests with the key of this hash, as in the log, or id." placeholder:"HASH"`
	Before  time.Time `help:"Only requests before this time: 2026-11-23T07:00:00Z." placeholder:"TIME"`
	Rows    int       `short:"n" default:"50" help:"Print at most N requests, 1 to 1000; default: 50." placeholder:"N"`
	answerFlags
}

// Run prints what all nodes decided about recent requests, newest first.
func (c decisionsCommand) Run(ctx context.Context, w Env) error {
	if c.Rows < 1 || c.Rows > admin.MaxRows {
		return misusef("-n %d: write 1 to %d", c.Rows, admin.MaxRows)
	}
	hash := strings.TrimPrefix(c.Hash, "hash:")
	if hash != "" && !proxy.NamesKey(hash) {
		return misusef("--hash %s: write the 12 digits that the log has, or an id as keys get prints it", c.Hash)
	}
	found, err := c.client().Decisions(ctx, view.DecisionQuery{Route: c.Route, Limit: c.Limit, Outcome: c.Outcome, Key: hash, Before: c.Before, N: c.Rows})
	if err != nil || c.JSON {
		return printJSON(w, found, err)
	}
	printUnanswered(w.Stderr, found.Nodes)
	t := textTable{columns: []string{"TIME", "REQUEST ID", "STATUS", "METHOD", "PATH", "DECISION"}, empty: "no recent request matches"}
	for _, d := range found.Decisions {
		t.add(textRow{}, d.At.UTC().Format("2006-01-02T15:04:05.000Z07:00"), d.RequestID, d.Status, d.Method, printable(d.Path),
			printable(cmp.Or(d.Summary, d.Outcome)))
	}
	return t.printAll(w.Stdout)
}

// adminFlags are the flags that select the admin listener of a running process.
type adminFlags struct {
	Admin string `default:"127.0.0.1:9901" env:"WEIR_ADMIN" help:"Address of the admin listener of a running weir: HOST:PORT or a URL; default: 127.0.0.1:9901." placeholder:"HOST:PORT"`
	accessFlags
}

func (a adminFlags) client() admin.Client {
	return a.clientOf("--admin", a.Admin)
}

// answerFlags are the flags of a command that prints what a running weir answers. They stand after its own in the help.
type answerFlags struct {
	JSON bool `name:"json" help:"Print JSON."`
	adminFlags
}

// accessFlags are the flags for an admin listener with tokens and TLS.
type accessFlags struct {
	Token  string `env:"WEIR_ADMIN_TOKEN" help:"Bearer token for the admin listener."`
	CACert string `name:"cacert" env:"WEIR_ADMIN_CACERT" help:"PEM file with the authorities that sign its certificate; default: those of the system." placeholder:"FILE"`
	Cert   string `name:"cert" env:"WEIR_ADMIN_CERT" help:"PEM file with a client certificate, required if it has a client_ca." placeholder:"FILE"`
	Key    string `name:"key" env:"WEIR_ADMIN_KEY" help:"PEM file with the private key of that certificate." placeholder:"FILE"`
}

// Validate implements kong's hook: it checks the files.
func (a accessFlags) Validate() error {
	_, err := a.config()
	return err
}

// clientOf returns a client for the admin listener that a flag names, or the default one. Without certificates, it is that of all commands.
func (a accessFlags) clientOf(flag, address string) admin.Client {
	c := admin.Client{Flag: flag, Address: cmp.Or(address, defaultAdmin), Token: a.Token}
	if a.CACert+a.Cert+a.Key == "" {
		return c
	}
	carrier := http.DefaultTransport.(*http.Transport).Clone()
	made, err := a.config()
	carrier.TLSClientConfig = made
	carrier.Protocols = new(http.Protocols)
	carrier.Protocols.SetHTTP1(true) // over HTTP/2 the reason for a refused certificate may be lost
	if err != nil {                  // changed since Validate
		carrier.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, err }
	}
	c.HTTP = &http.Client{Transport: carrier}
	return c
}

// config returns the TLS configuration of the flags.
func (a accessFlags) config() (*tls.Config, error) {
	made := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CACert != "" {
		text, err := os.ReadFile(a.CACert)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		if made.RootCAs = x509.NewCertPool(); !made.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--cacert %s: there is no certificate in this file; name one with -----BEGIN CERTIFICATE-----", a.CACert)
		}
	}
	switch {
	case a.Cert == "" && a.Key != "":
		return nil, errors.New("--key without --cert: write both, they belong together")
	case a.Cert != "":
		pair, err := tls.LoadX509KeyPair(a.Cert, cmp.Or(a.Key, a.Cert)) // one file may hold both
		if err != nil {
			return nil, fmt.Errorf("--cert: %w", err)
		}
		made.Certificates = []tls.Certificate{pair}
	}
	return made, nil
}

// report prints the details of an error to out: every problem of a configuration, one per line, or the answer of each
// node that refuses it. It returns errReported if there is nothing more to say; other errors it returns unchanged.
func report(out io.Writer, err error) error {
	problems, _ := errors.AsType[config.Problems](err)
	lines := admin.Texts(problems)
	if why, refused := errors.AsType[*admin.Problem](err); refused {
		lines = why.Problems
		if printUnanswered(out, why.Nodes) > 0 {
			return errors.New("not all nodes agree; nothing has changed")
		}
	}
	for _, line := range lines {
		fmt.Fprintln(out, line)
	}
	if len(lines) > 0 {
		return errReported
	}
	return err
}

// printUnanswered prints which nodes did not answer a question or could not do what was asked, and returns how many.
func printUnanswered(out io.Writer, nodes []view.NodeAnswer) (failed int) {
	for _, n := range view.NotOK(nodes) {
		failed++
		fmt.Fprintln(out, n)
	}
	return failed
}

// sender returns the user and the host name.
func sender() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
