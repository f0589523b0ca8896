package config

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// Prices say what each request costs that is sent to a phone number, or to a model by the tokens that it uses.
type Prices struct {
	Name     string
	Key      *key.Spec // the number, or the model
	Unit     string    // EUR
	Decimals int       // an amount of 1 is 10^-Decimals of the unit
	File     string    // as it is named
	Table    *key.Prices
}

// ByModel reports whether a response says how much is used, at these prices.
func (p *Prices) ByModel() bool { return p != nil && p.Table.ByModel() }

// Text formats an amount: 0.075 EUR.
func (p *Prices) Text(amount int64) string {
	return strings.TrimSpace(key.FormatAmount(amount, p.Decimals) + " " + p.Unit)
}

// Float returns an amount for metrics, which have no other numbers.
func (p *Prices) Float(amount int64) float64 { return float64(amount) / math.Pow10(p.Decimals) }

// PriceKey returns the key of the number whose price a request of a budget costs; nil of other limits.
func (l *Limit) PriceKey() *key.Spec {
	if l.Prices == nil {
		return nil
	}
	return l.Prices.Key
}

// writtenRate formats a rate of l as it is configured: 5/1m, or 400 EUR/1d of a budget.
func (l *Limit) writtenRate(r limiter.Rate) string {
	if l.Prices == nil {
		return r.String()
	}
	return l.Prices.Text(r.Count) + "/" + limiter.WindowName(r.Window)
}

// prices compiles the lists of prices.
func (l *loader) prices(keys *keys, forms map[string]*pricesForm) map[string]*Prices {
	all := map[string]*Prices{}
	for _, name := range form.SortedKeys(forms) {
		f := forms[name]
		l.checkName(f, name, "prices")
		p := &Prices{Name: name, Unit: f.Unit, Decimals: f.Decimals, File: "prices." + name}
		if f.Key != nil {
			p.Key = keys.use(f.Key)
		}
		if l.readPrices(f, p); p.Key != nil && p.Table != nil {
			l.refuse([]finding{
				{p.ByModel() && p.Key.Phone != nil, f.Key, "the key " + p.Key.Name + " is a phone number, and the rows are of models", "name the key of the model, for example json:/model"},
				{!p.ByModel() && p.Key.Phone == nil, f.Key, "the key " + p.Key.Name + " is not a phone number", "name a key with normalize: {as: e164}"},
			})
		}
		all[name] = p
	}
	return all
}

// readPrices reads the rows of p, in place or from a file.
func (l *loader) readPrices(f *pricesForm, p *Prices) {
	if !l.Valid(&f.File) {
		return // already reported
	}
	if l.Given(&f.Rows) == (f.File != "") && l.Valid(f) {
		l.Wrong(f, "has not exactly one of file and rows", "write file: with the name of a file of one PREFIX,TYPE,PRICE a line, or rows: [\"+4915,mobile,0.075\", \"*,*,0.30\"]")
		return
	}
	if f.File == "" {
		var problems []key.Problem
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
		var problems []key.Problem
		p.File = filepath.Base(f.File)
		p.Table, problems = key.ParsePrices(text, f.Decimals)
		l.faults("prices."+p.Name, "", text, problems)
	}
}

// budget compiles a limit of money: its rates are amounts, and its requests cost what their numbers do.
func (l *limits) budget(f *limitForm, limit *Limit) {
	limit.Algorithm, _ = limiter.ParseAlgorithm("sliding_log") // exact, for half of what others cost
	switch limit.Prices = l.routes.prices[f.Price]; {
	case f.Price == "" && !l.Given(&f.Price):
		l.Wrong(f, "a budget has no price", "write price: with the name of a list under prices")
	case f.Price != "" && limit.Prices == nil && l.Lacks(&l.main.Prices, f.Price):
		l.Wrong(&f.Price, "there are no prices "+form.Quote(f.Price), cmp.Or(form.Near(f.Price, form.SortedKeys(l.routes.prices)), "write prices: {"+f.Price+": {file: prices.csv, key: KEY, unit: EUR}} at the top"))
	}
	if limit.Prices == nil || limit.Prices.Table == nil || limit.Prices.Key == nil {
		return // reported
	}
	l.used[l.main.Prices[f.Price]] = true
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
func (l *limits) warnBudget(f *limitForm, limit *Limit) {
	if limit.OnStoreFailure != Deny && l.main.Store == StoreRedis {
		at := any(f)
		if l.Given(&f.OnStoreFailure) {
			at = &f.OnStoreFailure
		}
		l.Warn(at, "with on_store_failure: "+string(limit.OnStoreFailure)+" more than the budget may be spent while Redis is unreachable", "write on_store_failure: deny")
	}
	dearest := limit.Prices.Table.Dearest()
	for _, rates := range limit.allRates() {
		for _, rate := range rates {
			if rate.Count < dearest.Amount && !limit.Prices.ByModel() {
				l.Warn(&f.Budget, fmt.Sprintf("%s is less than the dearest price, %s in line %d of %s: such a number is always refused", limit.writtenRate(rate), limit.Prices.Text(dearest.Amount), dearest.Line, limit.Prices.File), "write a larger budget, or deny such numbers by a list")
				return
			}
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
