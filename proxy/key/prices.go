package key

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Price is what one number costs.
type Price struct {
	Amount int64    // in the smallest parts of the unit, of which a Prices has 10^decimals
	Prefix string   // of the row: "+4915"; "" for all numbers
	Type   LineType // of the row; "" for all types
	Line   int      // of the row, in the file
}

// errPrice reports a line of a price list that is not a row.
var errPrice = errors.New("not a price")

// A Prices is a list of prices by the beginning and the line type of phone numbers. It is immutable and
// safe for concurrent use.
type Prices struct {
	decimals int
	prefixes textTable // the index of the rows in byPrefix
	byPrefix [][]Price
	any      []Price // rows of the prefix *
	dearest  Price
}

// ParsePrices parses rows PREFIX,TYPE,PRICE, one per line: "+4915,mobile,0.075". PREFIX may be * for all
// numbers, and TYPE for all line types. A price has at most this number of decimals, and no currency. A
// first row of these words is ignored, and so are blank lines and comments, as in ParseList. It returns all
// problems; without a valid row, the last of them is that there is none.
func ParsePrices(text string, decimals int) (*Prices, []Problem) {
	p := &Prices{decimals: decimals}
	var problems []Problem
	line, isFirst := 0, true
	for entry := range Lines(text) {
		line++
		if entry == "" || isFirst && strings.EqualFold(strings.ReplaceAll(entry, " ", ""), "prefix,type,price") {
			continue
		}
		isFirst = false
		row, err := p.parse(entry)
		if row.Line = line; err == nil {
			err = p.insert(row)
		}
		if err != nil {
			problems = append(problems, Problem{line, err})
		}
	}
	if p.dearest.Line == 0 && len(problems) == 0 {
		problems = append(problems,
			Problem{1, fmt.Errorf("%w: the list is empty; write rows such as +4915,mobile,0.075", errPrice)})
	}
	p.prefixes.trim()
	return p, problems
}

// parse parses a row.
func (p *Prices) parse(entry string) (row Price, err error) {
	fields := strings.Split(entry, ",")
	if len(fields) != 3 {
		return row, fmt.Errorf("%w: %d fields instead of 3; write PREFIX,TYPE,PRICE such as +4915,mobile,0.075",
			errPrice, len(fields))
	}
	for i := range fields {
		fields[i] = strings.Trim(fields[i], " \t\"")
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

// insert adds a row.
func (p *Prices) insert(row Price) error {
	rows := &p.any
	if row.Prefix != "" {
		n := p.prefixes.insert(row.Prefix, uint32(len(p.byPrefix)))
		if int(n) == len(p.byPrefix) {
			p.byPrefix = append(p.byPrefix, nil)
		}
		rows = &p.byPrefix[n]
	}
	if i := slices.IndexFunc(*rows, func(r Price) bool { return r.Type == row.Type }); i >= 0 {
		return fmt.Errorf("%w: given twice, first in line %d; keep one of them", errPrice, (*rows)[i].Line)
	}
	*rows = append(*rows, row)
	if p.dearest.Line == 0 || row.Amount > p.dearest.Amount {
		p.dearest = row
	}
	return nil
}

// Of returns the price of a number: that of the row with the longest prefix that names its line type, or
// all. found is false if there is none; then it is the dearest price of the list.
func (p *Prices) Of(n Number) (price Price, found bool) {
	for rest := n.E164; rest != ""; {
		prefix, i, ok := p.prefixes.longest(rest)
		if !ok {
			break
		}
		if price, found = priceOf(p.byPrefix[i], n.Type); found {
			return price, true
		}
		rest = prefix[:len(prefix)-1]
	}
	if n.E164 != "" {
		price, found = priceOf(p.any, n.Type)
	}
	if !found {
		return p.dearest, false
	}
	return price, true
}

// priceOf returns the row for a type, or else that for all types.
func priceOf(rows []Price, of LineType) (price Price, found bool) {
	for _, row := range rows {
		if row.Type == of && of != "" {
			return row, true
		}
		if row.Type == "" {
			price, found = row, true
		}
	}
	return price, found
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
