package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/usage"
)

// costForm is how many permits a request takes.
type costForm struct {
	// From is the short form: header:NAME or query:NAME.
	From string `yaml:"-" short:"true"`

	// Reserve is what is taken until the response says what was used: the greatest that the request has, each json:/POINTER in its body; or a number if it has none.
	Reserve []reservedPart `yaml:"reserve" jsonschema:"required"`
	// Input, bytes or bytes/N, adds the bytes of the request's body, or an Nth of them: bytes is more than any text has tokens, bytes/4 what English has.
	Input string `yaml:"input,omitempty" jsonschema:"pattern=^bytes(/[1-9][0-9]?)?$"`
	// Settle is what a token of each kind costs, before and afterwards; for a budget the price says it.
	Settle *weightsForm `yaml:"settle,omitempty"`
	// Debt: with bounded never more than max_cost is counted of a response, with unbounded all that it says.
	Debt string `yaml:"debt,omitempty" jsonschema:"default=bounded,enum=bounded,enum=unbounded"`
}

// weightsForm are the costs of the kinds of tokens.
type weightsForm struct {
	// Input is what a token of the prompt costs.
	Input weight `yaml:"input" jsonschema:"default=1"`
	// Cached is what a token of the prompt costs that the upstream has read from its cache.
	Cached weight `yaml:"cached" jsonschema:"default=1"`
	// Output is what a token of the answer costs.
	Output weight `yaml:"output" jsonschema:"default=1"`
}

// Usage is where a response says what was used.
type Usage struct {
	// Format is that of the API, also in server-sent events.
	API string `yaml:"format,omitempty" jsonschema:"enum=openai,enum=anthropic,enum=gemini,enum=ollama" short:"true"`
	// Total, in place of a format, is one number: json:/POINTER in the response, also in server-sent events; header:NAME of its header; or bytes, which its body has.
	Total string `yaml:"total,omitempty"`
	// EnsureUsage has requests of OpenAI's kind that stream ask for the usage: stream_options in their body is changed.
	Ensures bool `yaml:"ensure_usage,omitempty" jsonschema:"default=false"`
	// OnCut: what counts of a response that was cut before it said its usage: keep what was reserved, or estimate, a quarter of the bytes that have passed, at most what was reserved.
	OnCut string `yaml:"on_cut,omitempty" jsonschema:"default=keep,enum=keep,enum=estimate"`

	Format       *usage.Format `yaml:"-"` // of the body; nil if it is not read
	Header       string        `yaml:"-"` // a field with the number
	Bytes        bool          `yaml:"-"` // the number is that of the bytes of the body
	EstimatesCut bool          `yaml:"-"` // a response that was cut counts by its bytes
}

// A reservedPart is a part of reserve: where the number is read from, or the number.
type reservedPart struct {
	text string
	from key.Origin
	n    int64 // 0 if it is read
}

// Parse is form.Text.
func (r *reservedPart) Parse(text string) (err error) {
	*r = reservedPart{text: text}
	if r.n, err = strconv.ParseInt(text, 10, 32); err == nil && r.n > 0 {
		return nil
	}
	if r.from, err = key.ParseOrigin(text); err != nil || !strings.HasPrefix(text, "json:/") {
		return fmt.Errorf("%q is not what may be reserved; write json:/POINTER, for example json:/max_tokens, or a number such as 2000", text)
	}
	return nil
}

// Wanted is form.Text.
func (*reservedPart) Wanted() (kind, instead string) {
	return "json:/POINTER or a number", "write for example json:/max_tokens, or 2000"
}

// Written is form.Text.
func (r *reservedPart) Written() any { return map[bool]any{true: r.n, false: r.text}[r.n > 0] }

// A weight is a number of at least 0.
type weight float64

// Parse is form.Text.
func (w *weight) Parse(text string) error {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0 && n <= 1e6) {
		return errors.New(form.Quote(text) + " is not a weight; write a number from 0 to 1000000, for example 0.1")
	}
	*w = weight(n)
	return nil
}

// Wanted is form.Text.
func (*weight) Wanted() (kind, instead string) { return "a number", "write for example 0.1" }

// Written is form.Text.
func (w *weight) Written() any { return float64(*w) }

// A Cost is how many permits a request takes.
type Cost struct {
	IsSaid bool        // by the request
	From   []*key.Spec // if it is said one header field or query parameter, or else what the request has, of which the greatest counts: the most that is written
	Max    int64       // at least 1; without a field or parameter that says it, a request costs 1

	// What is reserved of a cost that the response says.
	Otherwise int64 // reserved if it has none; 0: it is refused, unless Bytes is set
	Bytes     int64 // of the body, each so many are a token that is read; 0: none
	Weights   usage.Weights
	Unbounded bool // more than Max may be settled
}

// IsReserved reports whether the response says what a request has cost.
func (c *Cost) IsReserved() bool { return c != nil && !c.IsSaid }

// cost compiles the cost of a limit's requests.
func (l *limits) cost(f *Limit) *Cost {
	if f.CostForm == nil {
		return nil
	}
	for _, text := range append([]string{f.One}, f.Several...) {
		if rate, err := limiter.ParseRate(text); err == nil && int64(f.MaxCost) > max(rate.Count, f.Burst) {
			l.Warn(&f.MaxCost, "a request that asks for more than "+strings.TrimSpace(text)+" holds is refused with 400", "write at most "+strconv.FormatInt(rate.Count, 10))
		}
	}
	if f.CostForm.From == "" {
		return l.reservation(f)
	}
	from, err := key.ParseOrigin(f.CostForm.From)
	if err != nil || from.Source != key.Header && from.Source != key.Query {
		l.Wrong(&f.CostForm.From, form.Quote(f.CostForm.From)+" is not an origin of a cost", "write header:NAME or query:NAME, or reserve: below it")
		return nil
	}
	return &Cost{IsSaid: true, From: []*key.Spec{{Name: from.String(), From: from}}, Max: int64(f.MaxCost)}
}

// reservation compiles a cost that is known afterwards.
func (l *limits) reservation(f *Limit) *Cost {
	c := &Cost{Max: int64(f.MaxCost), Weights: usage.Weights{Input: 1, Cached: 1, Output: 1}}
	for i := range f.CostForm.Reserve {
		switch r := &f.CostForm.Reserve[i]; {
		case r.n == 0 && r.text != "":
			c.From = append(c.From, &key.Spec{Name: r.from.String(), From: r.from, OnMissing: key.Skip})
		case i < len(f.CostForm.Reserve)-1:
			l.Wrong(r, "what follows a number is never read", "write the number last")
		default:
			c.Otherwise = r.n
		}
	}
	if part, found := strings.CutPrefix(f.CostForm.Input, "bytes"); f.CostForm.Input != "" {
		n, err := strconv.ParseInt(strings.TrimPrefix(cmp.Or(part, "/1"), "/"), 10, 64)
		if c.Bytes = n; !found || err != nil || n < 1 || n > 99 {
			l.Wrong(&f.CostForm.Input, form.Quote(f.CostForm.Input)+" is no part of a body", "write bytes, or bytes/N with N up to 99, for example bytes/4")
		}
	}
	c.Unbounded = f.CostForm.Debt == "unbounded"
	if s := f.CostForm.Settle; s != nil {
		c.Weights = usage.Weights{Input: float64(s.Input), Cached: float64(s.Cached), Output: float64(s.Output)}
	}
	a, err := limiter.ParseAlgorithm(f.AlgorithmForm)
	l.refuse([]finding{
		{l.Given(&f.Ahead), &f.CostForm.Reserve, "cannot be settled: permits that are taken ahead are not settled", "write a separate limit for it"},
		{l.Given(&f.Concurrent), &f.CostForm.Reserve, "cannot be settled: a request in progress costs 1", "write a separate limit for it"},
		{l.Given(&f.ConversionForm), &f.CostForm.Reserve, "cannot be settled: a message costs 1", "write a separate limit for it"},
		{err == nil && a.HasBurst(), &f.AlgorithmForm, "gcra owes no more than its burst, so that a cost that is known afterwards would be forgotten", "write token_bucket, sliding_log, fixed_window or sliding_window"},
	})
	l.warn([]finding{{l.Given(&f.RedissonName), &f.CostForm.Reserve, "what a response says beyond it is not counted, because Java programs with Redisson know no debt", "reserve as much as may be used, for example with input: bytes"}})
	return c
}

// findable matches what package usage finds in a response.
var findable = regexp.MustCompile(`^json:(/[!#-%'-.0-;=?-[\]-}]{1,32}){1,8}$`)

// usage compiles where a route's responses say what was used.
func (r *routes) usage(f *Usage) *Usage {
	u := &Usage{Format: usage.Formats()[f.API], Bytes: f.Total == "bytes", Ensures: f.Ensures, EstimatesCut: f.OnCut == "estimate"}
	from, err := key.ParseOrigin(f.Total)
	isHeader, isPointer := err == nil && strings.HasPrefix(f.Total, "header:"), err == nil && findable.MatchString(f.Total)
	r.refuseFirst([]finding{
		{(f.API == "") == (f.Total == ""), f, "has not exactly one of format and total", "write openai, anthropic, gemini or ollama, or total: json:/POINTER"},
		{u.EstimatesCut && f.Total != "", &f.OnCut, "only tokens can be estimated", "leave it out"},
		{u.Ensures && f.API != "openai", &f.Ensures, "only requests of OpenAI's kind ask for their usage", "leave it out"},
		{f.Total != "" && !u.Bytes && !isHeader && !isPointer, &f.Total, form.Quote(f.Total) + " is not in a response", "write json:/POINTER of at most 8 names of at most 32 characters of ASCII, none of them a space, a quotation mark, <, >, &, ~ or \\, for example json:/usage/total_tokens, header:NAME, or bytes"},
	})
	r.warn([]finding{{f.API == "openai" && !r.Given(&f.Ensures), f, "a stream says its usage only if its client asks for it, and keeps what was reserved otherwise", "write {format: openai, ensure_usage: true}, or false if clients ask"}})
	if isHeader {
		u.Header = from.Name
	} else if isPointer {
		u.Format = usage.AtPointer(from.Name)
	}
	return u
}

// settled checks that what a route reserves is settled, and that what its responses say is used.
func (r *routes) settled(route *Route) {
	f := route.form
	i := slices.IndexFunc(route.Limits, func(l *Limit) bool { return l.Cost.IsReserved() })
	switch {
	case i >= 0 && !r.Given(&f.UsageForm):
		r.Wrong(f, "its limit "+route.Limits[i].Name+" reserves permits, and nothing says what is used", "write usage: openai, anthropic, gemini or ollama, or usage: {total: json:/POINTER}, beside limits")
	case f.UsageForm != nil && i < 0:
		r.Warn(f.UsageForm, "no limit of the route counts what is used", "write cost: {reserve: [2000]} in one of them, or leave usage out")
	case f.UsageForm != nil && route.Upstream == nil && f.UpstreamName == "":
		r.Wrong(f.UsageForm, "there is no upstream that says what is used", "write upstream:, or leave it out")
	}
}

// ByModel reports whether a response says how much is used, at these prices.
func (p *Prices) ByModel() bool { return p != nil && p.Table.ByModel() }

// Text formats an amount: 0.075 EUR.
func (p *Prices) Text(amount int64) string {
	return strings.TrimSpace(key.FormatAmount(amount, p.Decimals) + " " + p.Unit)
}

// Float returns an amount for metrics, which have no other numbers.
func (p *Prices) Float(amount int64) float64 { return float64(amount) / math.Pow10(p.Decimals) }

// writtenRate formats a rate of l as it is configured: 5/1m, or 400 EUR/1d of a budget.
func (l *Limit) writtenRate(r limiter.Rate) string {
	if l.Prices == nil {
		return r.String()
	}
	return l.Prices.Text(r.Count) + "/" + limiter.WindowName(r.Window)
}

// prices compiles the lists of prices. The File of one is then the base name of its file, or prices.NAME for rows in place.
func (l *loader) prices(keys *keys, forms map[string]*Prices) map[string]*Prices {
	all := map[string]*Prices{}
	for _, name := range form.SortedKeys(forms) {
		f := forms[name]
		l.checkName(f, name, "prices")
		p := &Prices{Name: name, Key: keys.use(f.Of), Unit: f.Unit, Decimals: f.Decimals, File: "prices." + name}
		if l.readPrices(f, p); p.Key != nil && p.Table != nil {
			l.refuse([]finding{
				{p.ByModel() && p.Key.Phone != nil, f.Of, "the key " + p.Key.Name + " is a phone number, and the rows are of models", "name the key of the model, for example json:/model"},
				{!p.ByModel() && p.Key.Phone == nil, f.Of, "the key " + p.Key.Name + " is not a phone number", "name a key with normalize: {as: e164}"},
			})
		}
		all[name] = p
	}
	return all
}

// readPrices reads the rows of p, in place or from a file.
func (l *loader) readPrices(f, p *Prices) {
	if !l.Valid(&f.File) {
		return // already reported
	}
	if l.Given(&f.Rows) == (f.File != "") && l.Valid(f) {
		l.Wrong(f, "has not exactly one of file and rows", "write file: with the name of a file of one PREFIX,TYPE,PRICE a line, or rows: [\"+4915,mobile,0.075\", \"*,*,0.30\"]")
		return
	}
	var problems []key.Problem
	if f.File == "" {
		p.Table, problems = key.ParsePrices(strings.Join(f.Rows, "\n"), f.Decimals) // a text of a file has no line break
		for _, problem := range problems {
			if len(f.Rows) == 0 {
				l.fault(&f.Rows, problem.Err)
				return
			}
			l.fault(&f.Rows[problem.Line-1], problem.Err)
		}
		return
	}
	if text, ok := l.text(&f.File, "write rows such as +4915,mobile,0.075"); ok {
		p.File = filepath.Base(f.File)
		p.Table, problems = key.ParsePrices(text, f.Decimals)
		l.faults("prices."+p.Name, "", text, problems)
	}
}

// budget compiles a limit of money: its rates are amounts, and its requests cost what their numbers do.
func (l *limits) budget(f, limit *Limit) {
	limit.Algorithm, _ = limiter.ParseAlgorithm("sliding_log") // exact, for half of what others cost
	switch limit.Prices = l.routes.prices[f.Price]; {
	case f.Price == "" && !l.Given(&f.Price):
		l.Wrong(f, "a budget has no price", "write price: with the name of a list under prices")
	case f.Price != "" && limit.Prices == nil && l.Lacks(&l.main.PriceForms, f.Price):
		l.Wrong(&f.Price, "there are no prices "+form.Quote(f.Price), cmp.Or(form.Near(f.Price, form.SortedKeys(l.routes.prices)), "write prices: {"+f.Price+": {file: prices.csv, key: KEY, unit: EUR}} at the top"))
	}
	if limit.Prices == nil || limit.Prices.Table == nil || limit.Prices.Key == nil {
		return // reported
	}
	l.used[l.main.PriceForms[f.Price]] = true
	l.refuse([]finding{
		{limit.Prices.ByModel() && !limit.Cost.IsReserved(), &f.Price, "its rows are of models, whose tokens are known when the response has come", "write cost: {reserve: [json:/max_tokens, 2000]} and max_cost beside it"},
		{!limit.Prices.ByModel() && limit.Cost.IsReserved(), &f.Price, "its rows are of phone numbers, to which a message has its price at once", "write rows of models, or cost: header:NAME"},
	})
	l.parameters(&f.Price, limit.Prices.Key)
	limit.ID += fmt.Sprintf(".e%d", limit.Prices.Decimals) // other decimals are other counts
	limit.Rates = l.parse(pointers(f.Budget), limit)
	l.overrides(f, limit)
	l.plans(f, limit)
	l.warnBudget(f, limit)
}

// warnBudget warns of what a budget does not promise.
func (l *limits) warnBudget(f, limit *Limit) {
	if limit.OnStoreFailure != Deny && l.main.Store == StoreRedis {
		at := any(f)
		if l.Given(&f.OnStoreFailure) {
			at = &f.OnStoreFailure
		}
		l.Warn(at, "with on_store_failure: "+string(limit.OnStoreFailure)+" more than the budget may be spent while Redis is unreachable", "write on_store_failure: deny")
	}
	dearest := limit.Prices.Table.Dearest()
	for _, rate := range slices.Concat(limit.allRates()...) {
		if rate.Count < dearest.Amount && !limit.Prices.ByModel() {
			l.Warn(&f.Budget, fmt.Sprintf("%s is less than the dearest price, %s in line %d of %s: such a number is always refused", limit.writtenRate(rate), limit.Prices.Text(dearest.Amount), dearest.Line, limit.Prices.File), "write a larger budget, or deny such numbers by a list")
			return
		}
	}
}

// rate parses a rate of a limit: COUNT/WINDOW, or AMOUNT/WINDOW of a budget.
func (l *Limit) rate(text string) (limiter.Rate, error) {
	if l.Prices == nil {
		return limiter.ParseRate(text)
	}
	amount, window, found := strings.Cut(strings.TrimSpace(text), "/")
	if !found {
		return limiter.Rate{}, fmt.Errorf("%q is not a budget; write AMOUNT/WINDOW, for example 400/1d", text)
	}
	n, err := key.ParseAmount(amount, l.Prices.Decimals)
	if err != nil {
		return limiter.Rate{}, err
	}
	if n == 0 {
		return limiter.Rate{}, fmt.Errorf("a budget of nothing; refuse keys by a list with action: deny")
	}
	return limiter.ParseRate(strconv.FormatInt(n, 10) + "/" + window)
}
