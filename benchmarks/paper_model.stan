// The paper's noise-aware logistic regression: dense multivariate normal over the statistics y x and x x', with Taylor
// moments. benchmarks/fit_speed.py says which misprints of the paper are mended here and why.
data {
  int<lower=1> d;                 // columns
  int<lower=1> M;                 // statistics: d + d (d + 1) / 2
  real<lower=1> N;                // rows
  vector[M] z;                    // released sums: y x_i, then x_i x_j (i <= j), the latter times sqrt(2) for i < j
  vector<lower=0>[M] noise;       // standard deviation of the privacy noise on each
  real<lower=0> s;                // bound of the squared norm of theta
}
transformed data {
  array[M - d] int row;
  array[M - d] int column;
  vector[M - d] scale;
  {
    int m = 1;
    for (i in 1:d) {
      for (j in i:d) {
        row[m] = i;
        column[m] = j;
        scale[m] = i == j ? 1 : sqrt(2.0);
        m += 1;
      }
    }
  }
}
parameters {
  vector[d] p;
  real<lower=0> rho;
  vector<lower=0>[d] tau;
  cholesky_factor_corr[d] L;
}
transformed parameters {
  vector[d] theta = sqrt(fmin(rho, s)) * p / sqrt(dot_self(p));
}
model {
  matrix[d, d] Sigma = multiply_lower_tri_self_transpose(diag_pre_multiply(tau, L));
  vector[d] w = Sigma * theta;
  real v = dot_product(theta, w);
  // tanh(u / 2) = u / 2 - u^3 / 24: expectations of its first and third derivative (Isserlis)
  real h1 = 0.5 - v / 8;
  real h3 = -0.25;
  int K = M - d;
  vector[M - d] second;
  for (m in 1:(M - d)) second[m] = scale[m] * Sigma[row[m], column[m]];
  vector[M] mean_t = append_row(h1 * w, second);
  matrix[K, K] even = (scale * scale') .* (Sigma[row, row] .* Sigma[column, column] + Sigma[row, column] .* Sigma[column, row]);
  matrix[d, K] cross = diag_post_multiply(h1 * (diag_post_multiply(Sigma[, row], w[column]) + diag_post_multiply(Sigma[, column], w[row])) + h3 * w * (w[row] .* w[column])', scale);
  matrix[M, M] cov_t = append_row(append_col(Sigma - square(h1) * w * w', cross), append_col(cross', even));
  p ~ std_normal();
  rho ~ chi_square(d);
  tau ~ normal(0, 2.5);
  L ~ lkj_corr_cholesky(2);
  z ~ multi_normal_cholesky(N * mean_t, cholesky_decompose(add_diag(N * cov_t, square(noise))));
}
