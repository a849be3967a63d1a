// Transcendental functions as straight-line code: range reduction, a
// polynomial, and the scale put back through the exponent bits. Nothing here
// calls libm, so a compiled kernel needs no library and gives the same bits
// everywhere.

#include "codegen/cpu/Val.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

/// c[0] + c[1] x + c[2] x^2 + .. by Horner's rule.
Val horner(Val x, llvm::ArrayRef<double> c) {
  Val sum = x.like(c.back());
  for (double coefficient : llvm::reverse(c.drop_back()))
    sum = fma(sum, x, x.like(coefficient));
  return sum;
}

/// 2^n for an integer-valued n (as bits of `Int`) within the normal exponents.
Val powerOfTwo(Val n, int64_t bias, int64_t mantissaBits, Type type) {
  return bitcast(shiftLeft(n + double(bias), n.like(double(mantissaBits))),
                 type);
}

/// Rounds x to the nearest integer by adding a constant whose last bit counts
/// ones: `rounded` is that integer as a float, and the result has it in its
/// low bits as an integer.
Val roundToInteger(Val x, Type integer, Val &rounded) {
  double magic = x.element().isF32() ? 0x1.8p23 : 0x1.8p52;
  Val shifted = x + magic;
  rounded = shifted - magic;
  // Subtracting the bits of the constant leaves the signed integer.
  Val bits = bitcast(shifted, integer);
  Val zero = bitcast(x.like(magic), integer);
  return bits - zero;
}

Val exp32(Val x) {
  auto &b = x.b();
  Type i32 = b.getI32Type();
  // Written so that a NaN is the second operand, which the comparison picks.
  x = select(x.like(-104.0) > x, x.like(-104.0), x);
  x = select(x.like(89.0) < x, x.like(89.0), x);
  Val n;
  Val k = roundToInteger(x * 0x1.715476p0, i32, n);
  Val r = fma(n, x.like(-0x1.62e400p-1), x); // ln 2 in two parts
  r = fma(n, x.like(-0x1.7f7d1cp-20), r);
  // Minimax for (e^r - 1 - r) / r^2 on |r| <= ln(2)/2, weighted so that e^r is
  // off by at most 3.1e-9 relative.
  Val p = horner(r, {0x1.fffffb97a5fe0p-2, 0x1.55549104290c5p-3,
                     0x1.5558f2f626f90p-5, 0x1.123a1f469703ep-7,
                     0x1.6a23cf4eebb1dp-10});
  p = fma(p, r * r, r) + 1.0;
  // In two factors: the result may be a denormal, or infinity.
  Val half = shiftRight(k, k.like(1));
  return p * powerOfTwo(half, 127, 23, b.getF32Type()) *
         powerOfTwo(k - half, 127, 23, b.getF32Type());
}

Val exp64(Val x) {
  auto &b = x.b();
  Type i64 = b.getI64Type();
  x = select(x.like(-746.0) > x, x.like(-746.0), x);
  x = select(x.like(710.0) < x, x.like(710.0), x);
  Val n;
  Val k = roundToInteger(x * 0x1.71547652b82fep0, i64, n);
  Val r = fma(n, x.like(-0x1.62e42fee00000p-1), x);
  r = fma(n, x.like(-0x1.a39ef35793c76p-33), r);
  llvm::SmallVector<double> taylor; // |r| < 0.35: r^14/14! is below 2^-57
  double factorial = 1;
  for (int i = 0; i <= 13; ++i) {
    taylor.push_back(1 / factorial);
    factorial *= i + 1;
  }
  Val p = horner(r, taylor);
  // No arithmetic right shift of 64-bit lanes before AVX-512; halve in floats.
  Val halfRounded;
  Val half = roundToInteger(n * 0.5, i64, halfRounded);
  return p * powerOfTwo(half, 1023, 52, b.getF64Type()) *
         powerOfTwo(k - half, 1023, 52, b.getF64Type());
}

/// Splits a positive normal x into m in [sqrt(1/2), sqrt(2)) and e, x = m 2^e.
Val split32(Val x, Val &e) {
  auto &b = x.b();
  Type i32 = b.getI32Type();
  Val bits = bitcast(x, i32) - double(0x3f3504f3);
  e = shiftRight(bits, bits.like(23));
  return bitcast((bits & double(0x007fffff)) + double(0x3f3504f3),
                 b.getF32Type());
}

Val log32(Val x) {
  auto &b = x.b();
  // Denormals become normal; the exponent is put right below.
  Val isTiny = x < 0x1p-126;
  Val scaled = select(isTiny, x * 0x1p24, x);
  Val exponent;
  Val m = split32(scaled, exponent);
  Val e = cast(exponent, b.getF32Type()) +
          select(isTiny, x.like(-24.0), x.like(0.0));
  Val r = m - 1.0;
  Val p = horner(r, {3.3333331174E-1, -2.4999993993E-1, 2.0000714765E-1,
                     -1.6668057665E-1, 1.4249322787E-1, -1.2420140846E-1,
                     1.1676998740E-1, -1.1514610310E-1, 7.0376836292E-2});
  Val square = r * r;
  // Smallest terms first; ln 2 in two parts.
  Val low = fma(e, x.like(-2.12194440e-4), p * square * r);
  low = fma(square, x.like(-0.5), low);
  Val result = fma(e, x.like(0.693359375), r + low);
  double infinity = std::numeric_limits<double>::infinity();
  result = select(x == infinity, x, result);
  result = select(x == 0.0, x.like(-infinity), result);
  return select(x >= 0.0, result,
                x.like(std::numeric_limits<double>::quiet_NaN()));
}

Val log1p32(Val x) {
  // log(w) x / (w - 1) with w = 1 + x rounded: the error of w cancels.
  Val w = x + 1.0;
  Val d = w - 1.0;
  Val isSmall = d == 0.0;
  Val ratio = x / select(isSmall, x.like(1.0), d);
  Val result = select(isSmall, x, log32(w) * ratio);
  return select(x == std::numeric_limits<double>::infinity(), x, result);
}

} // namespace

Val exp(Val a) { return a.element().isF64() ? exp64(a) : exp32(a); }

Val log(Val a) {
  assert(a.element().isF32() && "log of f32 only");
  return log32(a);
}

Val log1p(Val a) {
  assert(a.element().isF32() && "log1p of f32 only");
  return log1p32(a);
}

Val softplus(Val a) {
  // A NaN is the second operand of max, and so the result.
  return max(a.like(0.0), a) + log1p32(exp32(-abs(a)));
}

Val sigmoid(Val a) { return 1.0 / (exp(-a) + 1.0); }

Val silu(Val a) { return a / (exp(-a) + 1.0); }

void sinCos(Val a, Val &sine, Val &cosine) {
  assert(a.element().isF64() && "sinCos of f64 only");
  auto &b = a.b();
  Val n;
  Val quadrant = roundToInteger(a * 0x1.45f306dc9c883p-1, b.getI64Type(), n);
  // pi/2 in three parts; the first two have 20 and more zero bits at their end,
  // so their products with n are exact.
  Val r = fma(n, a.like(-0x1.921fb54400000p0), a);
  r = fma(n, a.like(-0x1.0b4611a600000p-34), r);
  r = fma(n, a.like(-0x1.3198a2e037073p-69), r);
  Val z = r * r;
  Val s = horner(z, {-1.66666666666666307295e-1, 8.33333333332211858878e-3,
                     -1.98412698295895385996e-4, 2.75573136213857245213e-6,
                     -2.50507477628578072866e-8, 1.58962301576546568060e-10});
  s = fma(s * z, r, r);
  Val c = horner(z, {4.16666666666665929218e-2, -1.38888888888730564116e-3,
                     2.48015872888517045348e-5, -2.75573141792967388112e-7,
                     2.08757008419747316778e-9, -1.13585365213876817300e-11});
  c = fma(c, z * z, fma(z, a.like(-0.5), a.like(1.0)));
  Val isOdd = (quadrant & 1.0) == 1.0;
  Val sineBase = select(isOdd, c, s);
  Val cosineBase = select(isOdd, s, c);
  Val negateSine = (quadrant & 2.0) == 2.0;
  Val negateCosine = ((quadrant + 1.0) & 2.0) == 2.0;
  sine = select(negateSine, -sineBase, sineBase);
  cosine = select(negateCosine, -cosineBase, cosineBase);
}

} // namespace qwen35::codegen::cpu
