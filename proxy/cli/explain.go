package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

type explainCommand struct {
	Method string   `arg:"" name:"method-or-id" complete:"GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS" help:"The method: GET, POST ...; or, without a URL, the id of a recent request, to show what was decided about it."`
	URL    string   `arg:"" optional:"" name:"url" help:"http://HOST/PATH, or /PATH."`
	Config string   `short:"c" help:"The configuration file; default: weir.yaml, then config.example.yaml." placeholder:"FILE" xor:"where"`
	Admin  string   `help:"Ask a running weir instead of reading a file: HOST:PORT or URL of its admin listener; default: WEIR_ADMIN, if it is set." placeholder:"HOST:PORT" xor:"where"`
	Header []string `short:"H" sep:"none" help:"A header field of the request; may be given several times." placeholder:"'NAME: VALUE'"`
	Data   *string  `short:"d" help:"The body of the request, or @FILE; @- is standard input." placeholder:"BODY"`
	Client string   `help:"The client's IP address; default: 127.0.0.1." placeholder:"IP" default:"127.0.0.1"`
	JSON   bool     `name:"json" help:"Print JSON."`
	accessFlags
}

// Run prints what would happen to a request: in a running weir, with its current
// counts, or by the file alone, with full quotas. With a request ID it prints what was
// decided about that request.
func (c explainCommand) Run(ctx context.Context, w Env) error {
	if c.Config == "" {
		c.Admin = cmp.Or(c.Admin, os.Getenv("WEIR_ADMIN"))
	}
	switch {
	case c.URL == "" && c.Config != "":
		return misusef("a request id needs a running weir; leave out -c, or write METHOD URL")
	case c.URL == "":
		return c.decided(ctx, w)
	case c.Admin != "":
		return c.ask(ctx, w)
	}
	read, err := load(c.Config)
	if err != nil {
		return err
	}
	methods := view.Each(read.Routes, func(r *config.Route) []string { return r.Match.Methods })
	request, err := c.request(slices.Concat(methods...), w)
	if err != nil {
		return err
	}
	p, err := proxy.NewOffline(ctx, read)
	if err != nil {
		return err
	}
	defer p.Close()
	e, err := p.Explain(ctx, request)
	if err != nil {
		return misused(err, proxy.ErrExplain)
	}
	if read.Privacy.HashSecret == "" { // the hashes would be made with a salt of this run alone
		for i := range e.Keys {
			e.Keys[i].Hash = ""
		}
	}
	return c.print(w, read.Files[0]+" alone, with nothing counted", e, nil)
}

// print prints an explanation, and by what it was made, unless there is an error.
func (c explainCommand) print(w Env, by string, e view.Explanation, err error) error {
	if err != nil || c.JSON {
		return printJSON(w, e, err)
	}
	explainText{e, newPalette(w.Stdout), by}.print(w.Stdout)
	return nil
}

// request builds the request that the command line describes; methods are those
// that routes name.
func (c explainCommand) request(methods []string, w Env) (view.ExplainRequest, error) {
	r := view.ExplainRequest{Method: c.Method, URL: c.URL, Header: map[string][]string{}}
	if err := checkMethod(c.Method, methods); err != nil {
		return r, err
	}
	for _, line := range c.Header {
		name, value, found := strings.Cut(line, ":")
		if !found || name == "" {
			return r, misusef("header %q: write 'NAME: VALUE', for example -H 'X-Phone: +8613800138000'", line)
		}
		name = http.CanonicalHeaderKey(name)
		r.Header[name] = append(r.Header[name], strings.TrimSpace(value))
	}
	var err error
	if r.Client, err = netip.ParseAddr(c.Client); err != nil {
		return r, misusef("client %q: not an IP address; write for example 203.0.113.7", c.Client)
	}
	if c.Data == nil {
		return r, nil
	}
	if slices.Contains([]string{http.MethodGet, http.MethodHead}, c.Method) {
		return r, misusef("a %s with a body: servers read it differently; leave out -d, or write POST", c.Method)
	}
	if r.Body, err = w.body(*c.Data); err != nil {
		return r, err
	}
	r.SetContentType()
	return r, nil
}

// body returns the argument of -d, or the content of the file that it names.
func (e Env) body(data string) (string, error) {
	file, named := strings.CutPrefix(data, "@")
	if !named {
		return data, nil
	}
	in, _, err := e.open(file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	b, err := io.ReadAll(in)
	return string(b), err
}

// checkMethod returns an error with a suggestion for an unknown method. Methods that
// routes name are known.
func checkMethod(method string, named []string) error {
	known := []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodTrace, http.MethodConnect,
		"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH", "QUERY",
	}
	known = append(known, named...)
	if slices.Contains(known, method) {
		return nil
	}
	advice := "write for example GET or POST"
	if upper := strings.ToUpper(method); slices.Contains(known, upper) {
		advice = "methods are in capital letters: write " + upper
	} else if strings.ContainsAny(method, "/:") {
		advice = "the method comes first: weir explain METHOD URL"
	} else {
		advice = cmp.Or(config.Near(upper, known), advice)
	}
	return misusef("method %q: not a known method; %s", method, advice)
}

// ask prints what a running weir would do with the request.
func (c explainCommand) ask(ctx context.Context, w Env) error {
	served, err := admin.Get[view.Routes](ctx, c.clientOf("--admin", c.Admin), "/routes")
	if err != nil {
		return err
	}
	methods := view.Each(served.Routes, func(r view.Route) []string { return r.Methods })
	request, err := c.request(slices.Concat(methods...), w)
	if err != nil {
		return err
	}
	e, err := admin.Post[view.Explanation](ctx, c.clientOf("--admin", c.Admin), "/explain", request)
	if p, refused := errors.AsType[*admin.Problem](err); refused && p.Status == http.StatusBadRequest {
		return misuse{err}
	}
	return c.print(w, fmt.Sprintf("generation %d of the weir at %s", e.Generation, c.Admin), e, err)
}

// decided prints what was decided about a recent request.
func (c explainCommand) decided(ctx context.Context, w Env) error {
	if slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}, c.Method) {
		return misusef("explain %s: write the URL after it, for example weir explain %s /v1/search", c.Method, c.Method)
	}
	if strings.ContainsAny(c.Method, "/:") {
		return misusef("explain %s: the method comes first, for example weir explain GET %s", c.Method, c.Method)
	}
	found, err := c.clientOf("--admin", c.Admin).Decisions(ctx, view.DecisionQuery{RequestID: c.Method})
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
func printDecision(w Env, d view.Decision) {
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
	for _, text := range d.Facts() {
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
			wait = view.Duration(time.Duration(l.WaitMS * float64(time.Millisecond)))
		}
		result := l.Result
		if l.Banned {
			result += ", banned"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Limit, l.Rate, result, left, wait, cmp.Or(l.Masked, l.Key), l.Hash)
	}
	t.Flush()
}

// An explainText writes an explanation as text.
type explainText struct {
	view.Explanation
	palette
	by string
}

func (e explainText) print(out io.Writer) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s\nby %s\n", e.head(fmt.Sprintf("%s %s://%s%s from %s", e.Method, e.Scheme, e.Host, e.Path, e.Client)), e.by)
	for _, section := range []struct {
		title string
		shown bool
		write func(*tabwriter.Writer)
	}{
		{"STAGES", true, e.stages},
		{"ROUTE", true, e.route},
		{"KEYS", len(e.Keys) > 0, e.keys},
		{"LISTS", len(e.Lists) > 0, e.lists},
		{"LIMITS", len(e.Limits) > 0, e.limits},
		{"RETURNS", len(e.Returns) > 0, e.returns},
		{"DECISION", e.Decision.Asked, e.decision},
		{"ANSWER", e.Answer != nil, e.answer},
		{"UPSTREAM", e.Upstream != nil, e.upstream},
	} {
		if section.shown {
			t.Flush() // each section has its own columns
			fmt.Fprintf(t, "\n%s\n", e.head(section.title))
			section.write(t)
		}
	}
	t.Flush()
}

func (e explainText) stages(t *tabwriter.Writer) {
	for _, s := range e.Stages {
		line := "  " + s.Name + "\t" + s.Result
		if s.Detail != "" {
			line += "\t" + s.Detail
		}
		fmt.Fprintln(t, line)
	}
}

func (e explainText) route(t *tabwriter.Writer) {
	if r := e.Route; r != nil {
		line := fmt.Sprintf("  %s\t%s\t%s", r.Name, strings.Join(nonEmpty(strings.Join(r.Methods, ","), r.Host+r.Path), " "), r.Position)
		if r.Lenient {
			line += "\tas a lenient upstream would read the request"
		}
		fmt.Fprintln(t, line)
	} else {
		fmt.Fprintf(t, "  %s\n", e.bad("none"))
	}
	for _, o := range e.Others {
		fmt.Fprintf(t, "  not %s\t%s\t%s\n", o.Name, strings.Join(o.Because, "; "), o.Position)
	}
}

func (e explainText) keys(t *tabwriter.Writer) {
	for _, k := range e.Keys {
		text := k.Value
		switch {
		case k.Error != "":
			text = e.bad(k.Error)
		case k.Skipped:
			text = "missing; limits with it do not apply"
		case k.Hash != "":
			text += "  (" + k.Hash + " in the log)"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", k.Name, k.From, text)
	}
}

func (e explainText) lists(t *tabwriter.Writer) {
	for _, l := range e.Lists {
		hit := "no match"
		if l.Hit {
			hit = e.mild("on it")
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", l.Name, l.Action, l.Key, hit)
	}
}

func (e explainText) limits(t *tabwriter.Writer) {
	fmt.Fprintln(t, "  NAME\tRATE\tALGORITHM\tMODE\tON STORE FAILURE\tKEY\tRESULT")
	for _, l := range e.Limits {
		if len(l.Windows) == 0 {
			fmt.Fprintf(t, "  %s\t-\t%s\t%s\t%s\t%s\tnot asked: %s\n", l.Name, l.Algorithm, l.Mode, l.OnStoreFailure, l.Key, l.Reason)
		}
		for i, w := range l.Windows {
			name := l.Name
			if i > 0 {
				name = ""
			}
			key := l.Value
			if l.Distinct != "" {
				key += " distinct " + l.Distinct
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, w.Rate, l.Algorithm, l.Mode, l.OnStoreFailure, key, e.verdict(l, w))
		}
	}
}

// returns writes which permits of other routes a response returns.
func (e explainText) returns(t *tabwriter.Writer) {
	for _, r := range e.Returns {
		fmt.Fprintf(t, "  %s\twith a status of %s\tthe permits of the same %s\n", view.LimitName(r.Route, r.Limit), strings.Join(r.Status, ", "), r.Key)
	}
}

// verdict returns the result of one rate.
func (e explainText) verdict(l view.ExplainedLimit, w view.ExplainedWindow) string {
	left, tail := cmp.Or(w.Left, fmt.Sprintf("%d of %d", w.Remaining, w.Most)), ""
	if more := l.Facts(w); len(more) > 0 {
		tail = "; " + strings.Join(more, ", ")
	}
	if w.Allowed {
		return e.good("allowed") + ", " + left + " left" + tail
	}
	after := view.Duration(time.Duration(w.WaitMS) * time.Millisecond)
	switch {
	case w.Banned:
		return e.bad("banned") + " for " + after + tail
	case l.Mode == "shadow":
		return e.mild("would refuse") + ", passes in " + after + tail
	}
	return e.bad("refused") + ", passes in " + after + tail
}

func (e explainText) decision(t *tabwriter.Writer) {
	d := e.Decision
	how := map[bool]string{true: "all limits by one script call", false: "all limits in one step"}[d.Store == "redis"]
	if d.Slots > 1 {
		how = fmt.Sprintf("by up to %d script calls at the same time, whose permits are returned if one refuses", d.Slots)
	}
	if len(d.By) > 0 {
		fmt.Fprintf(t, "  refused by %s\n", strings.Join(d.By, ", "))
	}
	fmt.Fprintf(t, "  store %s, %s\n", d.Store, how)
	if d.Reason != "" {
		fmt.Fprintf(t, "  %s\n", d.Reason)
	}
}

func (e explainText) answer(t *tabwriter.Writer) {
	status := fmt.Sprintf("%d", e.Answer.Status)
	if e.Answer.Status >= 400 {
		status = e.bad(status)
	}
	fmt.Fprintf(t, "  %s %s\n", status, e.Answer.Why)
	for _, name := range slices.Sorted(maps.Keys(e.Answer.Header)) {
		for _, v := range e.Answer.Header[name] {
			fmt.Fprintf(t, "  %s: %s\n", name, v)
		}
	}
	var problem struct{ Title, Detail string }
	if json.Unmarshal([]byte(e.Answer.Body), &problem) == nil && problem.Title != "" {
		fmt.Fprintf(t, "  %s\n", strings.TrimSuffix(problem.Title+": "+problem.Detail, ": "))
	}
}

func (e explainText) upstream(t *tabwriter.Writer) {
	u := e.Upstream
	where := strings.Join(u.Targets, ", ")
	if u.Echo {
		where = "built in"
	} else if len(u.Targets) > 1 {
		where += " (" + u.Balance + ")"
	}
	fmt.Fprintf(t, "  %s: %s\n  %s %s\n  Host: %s\n", u.Name, where, u.Method, u.Target, u.Host)
	for _, name := range slices.Sorted(maps.Keys(u.Header)) {
		sign := " "
		if slices.Contains(u.Set, name) {
			sign = e.good("+")
		}
		for _, v := range u.Header[name] {
			fmt.Fprintf(t, "%s %s: %s\n", sign, name, v)
		}
	}
	for _, name := range u.Removed {
		fmt.Fprintf(t, "%s %s\n", e.bad("-"), name)
	}
}
