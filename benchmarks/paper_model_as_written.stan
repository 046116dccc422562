// The paper's noise-aware logistic regression, entry by entry as its equations give the mean and covariance of the
// statistics, with a multivariate normal of a dense covariance. paper_model.stan is the same model, vectorised.
data {
  int<lower=1> d;                 // columns
  int<lower=1> M;                 // statistics: d + d (d + 1) / 2
  real<lower=1> N;                // rows
  vector[M] z;                    // released sums: y x_i, then x_i x_j (i <= j), the latter times sqrt(2) for i < j
  vector<lower=0>[M] noise;       // standard deviation of the privacy noise on each
  real<lower=0> s;                // bound of the squared norm of theta
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
  vector[M] mean_t;
  matrix[M, M] cov_t;
  int m = d;
  for (i in 1:d) {
    mean_t[i] = h1 * w[i];
    for (j in 1:d) cov_t[i, j] = Sigma[i, j] - h1 * h1 * w[i] * w[j];
  }
  for (i in 1:d) {
    for (j in i:d) {
      real scale = i == j ? 1 : sqrt(2.0);
      int n = d;
      m += 1;
      mean_t[m] = scale * Sigma[i, j];
      for (k in 1:d) {
        cov_t[k, m] = scale * (h1 * (Sigma[k, i] * w[j] + Sigma[k, j] * w[i]) + h3 * w[k] * w[i] * w[j]);
        cov_t[m, k] = cov_t[k, m];
        for (l in k:d) {
          n += 1;
          cov_t[m, n] = scale * (k == l ? 1 : sqrt(2.0)) * (Sigma[i, k] * Sigma[j, l] + Sigma[i, l] * Sigma[j, k]);
        }
      }
    }
  }
  p ~ std_normal();
  rho ~ chi_square(d);
  tau ~ normal(0, 2.5);
  L ~ lkj_corr_cholesky(2);
  z ~ multi_normal(N * mean_t, add_diag(N * cov_t, square(noise)));
}
