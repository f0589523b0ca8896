package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// client returns a client for the admin listener in the flags, or for the
// default one.
func (c explainCommand) client() admin.Client {
	return admin.Client{Address: cmp.Or(c.Admin, os.Getenv("WEIR_ADMIN"), defaultAdmin), Token: c.Token, HTTP: c.httpClient()}
}

// ask prints what a running weir would do with the request.
func (c explainCommand) ask(ctx context.Context, w Env) error {
	served, err := c.client().Routes(ctx)
	if err != nil {
		return err
	}
	var methods []string
	for _, r := range served.Routes {
		methods = append(methods, r.Methods...)
	}
	request, err := c.request(methods, w.stdin())
	if err != nil {
		return err
	}
	e, err := c.client().Explain(ctx, request)
	if err != nil {
		return err
	}
	return c.print(w, e)
}

// decided prints what was decided about a recent request.
func (c explainCommand) decided(ctx context.Context, w Env) error {
	if slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}, c.Method) {
		return fmt.Errorf("explain %s: write the URL after it, for example weir explain %s /v1/search", c.Method, c.Method)
	}
	found, err := c.client().Decided(ctx, c.Method)
	if err != nil || c.JSON {
		return printJSON(w, found, err)
	}
	printUnanswered(w.Stderr, found.Nodes)
	if len(found.Decisions) == 0 {
		return fmt.Errorf("no node has a record of request %q: the id is in the response field X-Request-Id and in the log; only the last few thousand requests are kept", c.Method)
	}
	for _, d := range found.Decisions {
		printDecision(w, d)
	}
	return nil
}

// printDecision prints a decision as text.
func printDecision(w Env, d admin.Decision) {
	p := newPalette(w.Stdout)
	fmt.Fprintf(w.Stdout, "%s\n", p.head(fmt.Sprintf("%s %s: %d, %s", d.Method, d.Path, d.Status, d.Outcome)))
	if d.Summary != "" {
		fmt.Fprintf(w.Stdout, "%s\n", d.Summary)
	}
	t := tabwriter.NewWriter(w.Stdout, 0, 0, 2, ' ', 0)
	for _, fact := range [][2]string{
		{"at", d.At.Format(time.RFC3339Nano)}, {"node", d.Node}, {"route", d.Route}, {"upstream", d.Upstream}, {"listener", d.Listener},
		{"list", d.List}, {"new keys", d.NewKeys}, {"without redis", d.Fallback}, {"error", d.Error},
	} {
		if fact[1] != "" {
			fmt.Fprintf(t, "  %s\t%s\n", fact[0], fact[1])
		}
	}
	for _, text := range holding(
		fact{d.Repeated, "repeats a counted request"}, fact{d.Waited, "waited for a permit"},
		fact{d.Exempt, "no limit applied"}, fact{d.BanBegan, "this refusal started a ban"},
	) {
		fmt.Fprintf(t, "  %s\n", text)
	}
	t.Flush()
	if len(d.Limits) > 0 {
		fmt.Fprintln(t, "  LIMIT\tRATE\tRESULT\tLEFT\tWAIT\tKEY\tHASH")
	}
	for _, l := range d.Limits {
		if l.Result == "not_asked" && d.Outcome == "refused" {
			continue // the sentence says it once for all
		}
		left, wait := "-", "-"
		if l.Left != nil {
			left = cmp.Or(l.Amount, fmt.Sprint(*l.Left))
		}
		if l.WaitMS > 0 {
			wait = max(time.Duration(l.WaitMS)*time.Millisecond, time.Millisecond).String()
		}
		result := l.Result
		if l.Banned {
			result += ", banned"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Limit, l.Rate, result, left, wait, cmp.Or(l.Masked, l.Key), l.Hash)
	}
	t.Flush()
}
