package key

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// A Price is what one number costs, or a token of one model.
type Price struct {
	Amount int64                                   // in the smallest parts of the unit, of which a Prices has 10^decimals; of a model, for a million tokens of its answers
	Tokens struct{ Input, Cached, Output float64 } // of a model: the same, for one token of each kind
	Prefix string                                  // of the row: "+4915"; "" for all numbers
	Type   LineType                                // of the row; "" for all types
	Line   int                                     // of the row, in the file
}

// errPrice reports a line of a price list that is not a row.
var errPrice = errors.New("not a price")

// modelRow matches a row of a model: what other rows have second is no number.
var modelRow = regexp.MustCompile(`^[^,]*,\d[^,]*,[^,]*,[^,]*$`)

// A Prices is a list of prices by the beginning and the line type of phone numbers, or by the beginning of the
// names of models. It is immutable and safe for concurrent use.
type Prices struct {
	decimals int
	fields   int // of each row
	rows     map[priceOf]Price
	longest  int // prefix
	dearest  Price
}

// A priceOf is what a row is for: its prefix and its type.
type priceOf struct {
	prefix string
	kind   LineType
}

// ParsePrices parses rows PREFIX,TYPE,PRICE, one per line: "+4915,mobile,0.075". PREFIX may be * for all
// numbers, and TYPE for all line types. Or it parses rows MODEL,INPUT,CACHED,OUTPUT, of what a million tokens
// cost. A price has at most this number of decimals, and no currency. A first row of these words is ignored,
// and so are blank lines and comments, as in ParseList. It returns all problems; without a valid row, the last
// of them is that there is none.
func ParsePrices(text string, decimals int) (*Prices, []Problem) {
	p := &Prices{decimals: decimals, fields: 3, rows: map[priceOf]Price{}}
	isFirst := true
	problems := eachEntry(Lines(text), func(line int, entry string) error {
		words := strings.ToLower(strings.ReplaceAll(entry, " ", ""))
		if isFirst && (words == "prefix,type,price" || words == "model,input,cached,output") {
			return nil
		}
		if p.dearest.Line == 0 && modelRow.MatchString(words) {
			p.fields = 4
		}
		isFirst = false
		row, err := p.parse(entry)
		if row.Line = line; err == nil {
			err = p.insert(row)
		}
		return err
	})
	if p.dearest.Line == 0 && len(problems) == 0 {
		problems = append(problems,
			Problem{1, fmt.Errorf("%w: the list is empty; write rows such as +4915,mobile,0.075", errPrice)})
	}
	return p, problems
}

// parse parses a row.
func (p *Prices) parse(entry string) (row Price, err error) {
	fields := strings.Split(entry, ",")
	if len(fields) != p.fields {
		instead := map[bool]string{false: "PREFIX,TYPE,PRICE such as +4915,mobile,0.075", true: "MODEL,INPUT,CACHED,OUTPUT such as gpt-4o,2.5,1.25,10"}[p.ByModel()]
		return row, fmt.Errorf("%w: %d fields instead of %d; write %s", errPrice, len(fields), p.fields, instead)
	}
	for i := range fields {
		fields[i] = strings.Trim(fields[i], " \t\"")
	}
	if p.ByModel() {
		return p.parseModel(fields)
	}
	if fields[0] != "*" {
		if row.Prefix, err = dialedPrefix(fields[0]); err != nil {
			return row, err
		}
	}
	if fields[1] != "*" {
		if row.Type, err = ParseLineType(fields[1]); err != nil {
			return row, err
		}
	}
	row.Amount, err = ParseAmount(fields[2], p.decimals)
	return row, err
}

// parseModel parses a row of what a million tokens of a model cost.
func (p *Prices) parseModel(fields []string) (row Price, err error) {
	if row.Prefix = strings.TrimPrefix(fields[0], "*"); len(row.Prefix) > MaxPrefix || strings.ContainsAny(row.Prefix, " *=") {
		return row, fmt.Errorf("%w: %q is not the beginning of a model's name; write for example gpt-4o, or * for all", errPrice, fields[0])
	}
	for i, of := range []*float64{&row.Tokens.Input, &row.Tokens.Cached, &row.Tokens.Output} {
		if row.Amount, err = ParseAmount(fields[1+i], p.decimals); err != nil {
			return row, err
		}
		*of = float64(row.Amount) / 1e6
	}
	return row, nil
}

// ByModel reports whether the prices are of tokens.
func (p *Prices) ByModel() bool { return p.fields == 4 }

// insert adds a row.
func (p *Prices) insert(row Price) error {
	of := priceOf{row.Prefix, row.Type}
	if first, twice := p.rows[of]; twice {
		return fmt.Errorf("%w: given twice, first in line %d; keep one of them", errPrice, first.Line)
	}
	p.rows[of], p.longest = row, max(p.longest, len(row.Prefix))
	if p.dearest.Line == 0 || row.Amount > p.dearest.Amount {
		p.dearest = row
	}
	return nil
}

// Of returns the price of a number, by its line type, or of a model: that of the row with the longest prefix that names the type,
// or all. found is false if there is none; then it is the dearest price of the list.
func (p *Prices) Of(text string, kind LineType) (price Price, found bool) {
	for n := min(len(text), p.longest); n >= 0 && text != ""; n-- {
		for _, of := range []LineType{kind, ""} {
			if price, found = p.rows[priceOf{text[:n], of}]; found {
				return price, true
			}
		}
	}
	return p.dearest, false
}

// Dearest returns the highest price.
func (p *Prices) Dearest() Price { return p.dearest }

// ParseAmount parses an amount of money without a sign, such as 0.075, in parts of 10^-decimals. The error
// contains what to write.
func ParseAmount(s string, decimals int) (int64, error) {
	whole, rest, hasPoint := strings.Cut(s, ".")
	rest = strings.TrimRight(rest, "0")
	digits := whole + rest
	if whole == "" || hasPoint && strings.HasSuffix(s, ".") || strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("%w: not an amount; write digits with a point, such as 0.075", errPrice)
	}
	if len(rest) > decimals {
		return 0, fmt.Errorf("%w: more than %d decimals; round it up, or write decimals: %d", errPrice,
			decimals, len(rest))
	}
	n, err := strconv.ParseInt(digits+strings.Repeat("0", decimals-len(rest)), 10, 64)
	if err != nil || n > math.MaxInt32 {
		return 0, fmt.Errorf("%w: more than %s, the most with %d decimals; write a smaller amount, or fewer decimals",
			errPrice, FormatAmount(math.MaxInt32, decimals), decimals)
	}
	return n, nil
}

// FormatAmount formats an amount as ParseAmount reads it, with the fewest digits.
func FormatAmount(n int64, decimals int) string {
	digits := fmt.Sprintf("%0*d", decimals+1, n)
	whole, rest := digits[:len(digits)-decimals], strings.TrimRight(digits[len(digits)-decimals:], "0")
	if rest == "" {
		return whole
	}
	return whole + "." + rest
}

// Number returns the phone number of the key that v extracted last, the zero Number if it is none.
func (v *Value) Number() Number {
	if len(v.components) != 1 {
		return Number{}
	}
	return v.components[0].number
}
