package outbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// Guard says which addresses may be connected to. Whoever may set an endpoint's URL must not reach what only this machine
// can reach, so the address itself is looked at, after the name was resolved and before it is connected to: a name that
// changes between two looks gets around nothing. The zero Guard allows public addresses alone.
type Guard struct {
	// Allow are networks of one's own that may be reached although they are not public, also without TLS.
	Allow []netip.Prefix
}

var errRefused = errors.New("the address is not public, and no network that is allowed")

// ParseAllow reads networks, separated by commas: 10.1.0.0/16,fd00::/8. A single address is a network of one.
func ParseAllow(text string) (allow []netip.Prefix, err error) {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		prefix, err := netip.ParsePrefix(word)
		if err != nil {
			single, err := netip.ParseAddr(word)
			if err != nil || single.Zone() != "" {
				return nil, fmt.Errorf("%q is no network: use CIDRs, for example 10.1.0.0/16", word)
			}
			prefix = netip.PrefixFrom(single, single.BitLen())
		}
		if prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("%q: write it as IPv4", word)
		}
		allow = append(allow, prefix.Masked())
	}
	return allow, nil
}

// public4 excepts these from all that IPv4 can say, and public6 from 2000::/3, which is all that is given out of IPv6.
var (
	notPublic4 = prefixes(
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
		"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4")
	public6    = netip.MustParsePrefix("2000::/3")
	notPublic6 = prefixes(
		"2001::/23",     // protocols, Teredo among them, which leads to IPv4
		"2001:db8::/32", // documentation
		"2002::/16",     // 6to4 leads to IPv4
		"3fff::/20")     // documentation
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func within(address netip.Addr, list []netip.Prefix) bool {
	for _, prefix := range list {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// check says whether an address may be connected to; without TLS only what is allowed by name.
func (g Guard) check(address netip.Addr, encrypted bool) error {
	if address.Zone() != "" {
		return errRefused
	}
	address = address.Unmap() // ::ffff:127.0.0.1 is 127.0.0.1
	switch {
	case within(address, g.Allow):
		return nil
	case !encrypted:
		return errRefused
	case address.Is4() && !within(address, notPublic4), address.Is6() && public6.Contains(address) && !within(address, notPublic6):
		return nil
	}
	return errRefused
}

// dialer connects to what the guard allows.
func (g Guard) dialer(encrypted bool) func(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{
		Timeout: connectFor,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return errRefused
			}
			return g.check(to.Addr(), encrypted)
		},
	}
	return dialer.DialContext
}

const connectFor = 5 * time.Second
